# SPDX-License-Identifier: Apache-2.0
"""Our convolution of few channels compiled for GPUs that are not here, and the instructions that came out."""

from pathlib import Path

import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.kernel import CompiledKernel
from quantrt.kernels.thin_conv2d.spec import TileConfig, border_kernel_of, kernel_of
from quantrt.kernels.thin_conv2d.tiles import configs
from tests.kernels.convolutions.test_conv2d_compiled import CAPABILITIES, SHARED_BYTES, instructions
from tests.unit.kernels.thin_conv2d.test_tiles import PROBLEMS

TILE = TileConfig(4, 16, 64, 4, 2)
H200 = gpu_named("H200")


@pytest.fixture(scope="module")
def compiled(compiled_all) -> dict[str, CompiledKernel]:
    """The same tile for codes and floats for every capability."""
    dtypes = "int8", "float16"
    specs = [kernel_of(PROBLEMS[dtype], TILE) for dtype in dtypes]
    return dict(zip(dtypes, compiled_all(specs, CAPABILITIES), strict=True))


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_it_compiles_everywhere(
    compiled: dict[str, CompiledKernel], dtype: str, capability: int, tmp_path: Path
):
    kernel = compiled[dtype]
    assert 0 < kernel.shared_bytes[capability] <= TILE.shared_bytes(PROBLEMS[dtype])
    assert kernel.shared_bytes[capability] <= SHARED_BYTES[capability] * 1024
    used = instructions(kernel.cubins[capability], tmp_path)
    assert any("MMA" in name for name in used)
    # Copies run ahead of the products, through the L1 cache, for windows overlap.
    assert "LDGSTS.E.64" in used and "LDGSTS.E.BYPASS.128" not in used


def test_no_tile_spills(compiled_all):
    specs = [kernel_of(problem, x) for problem in PROBLEMS.values() for x in configs(problem, H200)[:2]]
    kernels = compiled_all([*specs, border_kernel_of(PROBLEMS["int8"])], (90,))
    assert all(kernel.spills == 0 and kernel.registers > 16 for kernel in kernels)
