# SPDX-License-Identifier: Apache-2.0
"""Products with weights in 4 bits compiled for GPUs that are not here, and the instructions that came out."""

import re
import subprocess
from pathlib import Path

import pytest
from triton import knobs

from quantrt.gpu import gpu_named
from quantrt.kernels.gemm.spec import TileConfig
from quantrt.kernels.gemm_w4a16.spec import kernel_of
from quantrt.kernels.gemm_w4a16.tiles import configs
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.split_k.spec import SplitConfig
from tests.kernels.products.gemm_problems import gated_floats, heavy_floats, plain_floats
from tests.kernels.products.grouped_products import grouped
from tests.kernels.products.test_gemm_compiled import CAPABILITIES, SHARED_BYTES

FEW = SplitConfig(TileConfig(16, 64, 128, 4, 4), 4)
WHOLE = SplitConfig(TileConfig(32, 64, 64, 4, 3), 1)


def specs() -> dict[str, KernelSpec]:
    return {
        "parts": kernel_of(grouped(plain_floats(16, 1024, 4096), 64), FEW),
        "whole": kernel_of(grouped(heavy_floats(64, 4096, 1024), 32), WHOLE),
        "zero points": kernel_of(grouped(heavy_floats(64, 4096, 1024), 64, has_zeros=True), WHOLE),
        "gate": kernel_of(grouped(gated_floats(64, 4096, 1024), 64), WHOLE),
    }


@pytest.fixture(scope="module")
def compiled(compiled_all) -> dict[str, CompiledKernel]:
    return dict(zip(specs(), compiled_all(list(specs().values()), CAPABILITIES), strict=True))


def instructions(cubin: bytes, folder: Path) -> list[str]:
    """Of the whole kernel, in order."""
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return re.findall(r"\*/\s+(?:@!?U?P\d\s+)?([A-Z][A-Za-z0-9_.]*)", text)


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", specs())
def test_it_compiles_everywhere(
    compiled: dict[str, CompiledKernel], name: str, capability: int, tmp_path: Path
):
    kernel = compiled[name]
    assert 0 < kernel.shared_bytes[capability] <= SHARED_BYTES[capability] * 1024
    found = instructions(kernel.cubins[capability], tmp_path)
    assert any("MMA" in name for name in found)
    assert any(name.startswith("LDGSTS") for name in found), "copies run ahead of the products"
    assert not any(name.startswith(("STL", "LDL")) for name in found)
    decoding = [name for name in found if name.startswith(("HADD2", "HFMA2"))]
    assert decoding, "codes become halves two at a time"


def test_decoded_weights_go_into_the_tensor_cores_from_registers(
    compiled: dict[str, CompiledKernel], tmp_path: Path
):
    found = instructions(compiled["parts"].cubins[90], tmp_path)
    places = [place for place, name in enumerate(found) if name.startswith("HGMMA")]
    assert places and all("64x16x16" in found[place] for place in places), "16 rows of x, and no more"
    assert not any(name.startswith("STS") for name in found[: places[-1]])


@pytest.mark.parametrize("M", [1, 128, 4096])
@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_no_tile_spills(compiled_all, M: int, group_size: int):
    h200 = gpu_named("H200")
    problem = grouped(heavy_floats(M, 1024, 4096), group_size, has_zeros=group_size == 64)
    chosen = configs(problem, h200)
    kernels = compiled_all([kernel_of(problem, config) for config in chosen], (90,))
    assert all(kernel.spills == 0 and kernel.registers > 16 for kernel in kernels)
    assert all(kernel.shared_bytes[90] <= h200.shared_memory_bytes for kernel in kernels)
