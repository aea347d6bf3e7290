# SPDX-License-Identifier: Apache-2.0
"""Kernels that add up parts of sums compiled for GPUs that are not here."""

from pathlib import Path

import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.conv2d.spec import TileConfig as ConvTile
from quantrt.kernels.gemm.spec import TileConfig as GemmTile
from quantrt.kernels.kernel import KernelSpec
from quantrt.kernels.split_k.spec import SplitConfig, add_kernel_of, parts_kernel_of
from quantrt.kernels.split_k.tiles import configs
from tests.kernels.convolutions.test_conv2d_compiled import CAPABILITIES, SHARED_BYTES, instructions, problem
from tests.kernels.products.gemm_problems import heavy_codes, heavy_floats
from tests.unit.kernels.split_k.test_split_tiles import PROBLEMS


def specs() -> dict[str, KernelSpec]:
    """Small tiles, and the additions with long epilogues."""
    products, layers = SplitConfig(GemmTile(64, 64, 64, 4, 3), 4), SplitConfig(ConvTile(64, 64, 64, 4, 3), 2)
    return {
        "product": parts_kernel_of(heavy_codes(128, 1024, 4096), products),
        "layer": parts_kernel_of(problem("float16"), layers),
        "add codes": add_kernel_of(heavy_codes(128, 1024, 4096), products),
        "add floats": add_kernel_of(heavy_floats(128, 1024, 4096), products),
        "add pixels": add_kernel_of(problem("int8"), layers),
    }


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_they_compile_everywhere(compiled_all, capability: int, tmp_path: Path):
    found = dict(zip(specs(), compiled_all(list(specs().values()), (capability,)), strict=True))
    for name, kernel in found.items():
        assert kernel.shared_bytes[capability] <= SHARED_BYTES[capability] * 1024
        assert kernel.spills == 0 or capability != 90
        used = instructions(kernel.cubins[capability], tmp_path)
        assert name.startswith("add") or any("MMA" in text for text in used)
        assert any(".128" in text for text in used), name


def test_no_tile_spills(compiled_all):
    h200 = gpu_named("H200")
    found = [parts_kernel_of(x, config) for x in PROBLEMS.values() for config in configs(x, h200)]
    assert all(kernel.spills == 0 and kernel.registers > 16 for kernel in compiled_all(found, (90,)))
