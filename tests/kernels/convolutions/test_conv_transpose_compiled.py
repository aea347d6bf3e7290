# SPDX-License-Identifier: Apache-2.0
"""Our kernel for transposed convolutions compiled for GPUs that are not here."""

from pathlib import Path

import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.conv_transpose.spec import SpreadProblem, TileConfig, configs, kernel_of, why_not
from quantrt.kernels.kernel import CompiledKernel
from quantrt.regions.expression import Expression, Operand
from tests.kernels.convolutions.test_conv2d_compiled import CAPABILITIES, instructions
from tests.kernels.memory_bound.expressions import Builder, constant, scalar

TILE = TileConfig(128, 64, 64, 4, 3)


def to_codes() -> Expression:
    b = Builder(Operand("accumulator"), constant("scale"), constant("bias"), scalar(0.1))
    return b.build(b("quantize", b("max", b("add", b("mul", 0, 1), 2), b.const(0.0)), 3))


def problem(dtype: str, K: int = 256) -> SpreadProblem:
    """A layer of a U-Net: 128 x 128 pixels, 256 channels to 128."""
    return SpreadProblem(128 * 128, K, 128, 2, 2, dtype, to_codes(), (), (dtype,))


@pytest.fixture(scope="module")
def compiled(compiled_all) -> dict[str, CompiledKernel]:
    specs = {dtype: kernel_of(problem(dtype), TILE) for dtype in ("int8", "float16")}
    return dict(zip(specs, compiled_all(list(specs.values()), CAPABILITIES), strict=True))


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_it_compiles_everywhere(
    compiled: dict[str, CompiledKernel], dtype: str, capability: int, tmp_path: Path
):
    kernel = compiled[dtype]
    found = instructions(kernel.cubins[capability], tmp_path)
    assert any("MMA" in name for name in found), found
    assert kernel.spills == 0


def test_which_tiles_and_where():
    device = gpu_named("H200")
    assert len(configs(problem("int8"), device)) > 3
    assert why_not(problem("int8"), device) is None
    assert "overflow" in str(why_not(problem("int8", K=200_000), device))
    assert "75" in str(why_not(problem("int8"), gpu_named("T4")))
