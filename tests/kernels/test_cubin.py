# SPDX-License-Identifier: Apache-2.0
"""What kernels take, as read from their machine code and as NVIDIA's tool tells it."""

import re
import subprocess
from pathlib import Path

import pytest
from triton import knobs

from quantrt.kernels.conv2d.spec import TileConfig, kernel_of
from quantrt.kernels.cubin import Resources, resources_of
from tests.kernels.convolutions.test_conv2d_compiled import problem


def told(cubin: bytes, folder: Path) -> Resources:
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", path]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", text).groups()
    return Resources(int(registers), int(stack))


@pytest.mark.parametrize("capability", [80, 90, 120])
def test_registers_and_stack_are_those_that_cuobjdump_tells(compiled_all, capability: int, tmp_path: Path):
    tiles = [TileConfig(64, 32, 64, 4, 2), TileConfig(256, 256, 64, 4, 2)]
    small, large = compiled_all([kernel_of(problem("int8"), tile) for tile in tiles], (capability,))
    for kernel in (small, large):
        found = resources_of(kernel.cubins[capability])
        assert found == told(kernel.cubins[capability], tmp_path)
        assert (kernel.registers, kernel.spills) == (found.registers, found.stack_bytes // 4)
        cut = kernel.cubins[capability]
        assert resources_of(cut[: len(cut) // 2]) is None
    assert small.spills == 0 < large.spills


@pytest.mark.parametrize("data", [b"", b"\x7fELF", bytes(200)])
def test_what_is_no_machine_code_tells_nothing(data: bytes):
    assert resources_of(data) is None
