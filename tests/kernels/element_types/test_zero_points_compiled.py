# SPDX-License-Identifier: Apache-2.0
"""Kernels whose codes have zero points, compiled for GPUs that are not here: what they cost."""

import re
import subprocess
from pathlib import Path

import pytest
from triton import knobs

from quantrt.kernels.conv2d.spec import ConvProblem, TileConfig, kernel_of
from quantrt.kernels.depthwise import spec as depthwise
from quantrt.kernels.kernel import CompiledKernel
from quantrt.kernels.pixel_tile import PixelTile
from quantrt.regions.expression import Expression, Operand
from tests.conv_layers import layer
from tests.kernels.memory_bound.expressions import Builder, constant, scalar

CAPABILITIES = (80, 86, 89, 90, 100, 120)
TILE = TileConfig(128, 64, 64, 4, 3)
ALONE = PixelTile(32, 32, 2)


def residual(zero_point: int | None) -> Expression:
    """Codes of relu(sums * scale + bias + r * s), all on grids with zero points or on none."""
    b = Builder(
        Operand("accumulator"),
        constant("accumulator zero"),
        constant("scale"),
        constant("bias"),
        Operand("tensor", "r"),
        *map(scalar, (-100.0, 0.1, 0.2, zero_point or 0)),
    )
    has_zero = zero_point is not None
    x = b("add", b("mul", b("sub", 0, 1) if has_zero else 0, 2), 3)
    x = b("max", b("add", x, b("mul", b("sub", 4, 5) if has_zero else 4, 6)), b.const(0.0))
    return b.build(b("quantize_at", x, 7, 8) if has_zero else b("quantize", x, 7))


def problem(zero_point: int | None, taps: int) -> ConvProblem:
    pad_code = -128 if taps > 1 and zero_point is not None else 0
    return layer(14, 256, 256, taps, epilogue=residual(zero_point), tensors=("int8",), pad_code=pad_code)


@pytest.fixture(scope="module")
def compiled(compile_kernels) -> dict[tuple[str, int | None], CompiledKernel]:
    specs = {("pointwise", zero): kernel_of(problem(zero, 1), TILE) for zero in (None, -128, -101)}
    specs |= {("depthwise", zero): depthwise.kernel_of(problem(zero, 3), ALONE) for zero in (None, -128)}
    found = compile_kernels(list(specs.values()), CAPABILITIES)
    failures = [row for row in found.values() if not isinstance(row, CompiledKernel)]
    assert not failures, failures[0].reason
    return {name: found[spec] for name, spec in specs.items()}


def machine_code(kernel: CompiledKernel, capability: int, folder: Path) -> str:
    path = folder / "kernel.cubin"
    path.write_bytes(kernel.cubins[capability])
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def additions(kernel: CompiledKernel, capability: int, folder: Path) -> int:
    """Of float32, in the machine code."""
    return len(re.findall(r"\bFADD\b", machine_code(kernel, capability, folder)))


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("kind", "elements"), [("pointwise", 64), ("depthwise", 16)])
def test_a_zero_point_costs_no_addition_for_an_element(
    compiled, kind: str, elements: int, capability: int, tmp_path: Path
):
    """A thread has so many; constants of its columns are added to once, and numbers."""
    plain = additions(compiled[kind, None], capability, tmp_path)
    shifted = additions(compiled[kind, -128], capability, tmp_path)
    columns = 16
    assert shifted - plain <= columns + 4
    assert plain >= 3 * elements  # of each: into a float, a bias, a residual


def test_an_odd_one_costs_one(compiled, tmp_path: Path):
    even, odd = (additions(compiled["pointwise", zero], 90, tmp_path) for zero in (-128, -101))
    assert 60 < odd - even <= 64


def test_for_every_gpu_and_without_spills(compiled):
    for kernel in compiled.values():
        assert set(kernel.cubins) == set(CAPABILITIES)
        assert kernel.spills == 0


@pytest.mark.parametrize("capability", [80, 86, 89, 90])
def test_padding_is_in_every_byte_of_a_wide_load(compiled, capability: int, tmp_path: Path):
    """A constant of -128 would be moved into registers as 0xffffff80: -1 in three bytes of four."""
    text = machine_code(compiled["depthwise", -128], capability, tmp_path)
    assert re.search(r"LDG\.E(\.\w+)*\.(64|128)", text)
    assert not re.search(r"\b(MOV|IMAD\.MOV\.U32|UMOV)\b[^;]*, 0xffffff80", text)
