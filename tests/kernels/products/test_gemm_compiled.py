# SPDX-License-Identifier: Apache-2.0
"""Our product compiled for GPUs that are not here, and the instructions that came out."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from triton import knobs

from quantrt.gpu import gpu_named
from quantrt.kernels.gemm.spec import GemmProblem, TileConfig, kernel_of
from quantrt.kernels.gemm.tiles import configs
from quantrt.kernels.kernel import CompiledKernel
from tests.kernels.products.gemm_problems import (
    both_forms,
    gated_codes,
    gated_floats,
    heavy_codes,
    heavy_floats,
    plain_codes,
    plain_floats,
    scaled_rows,
)

CAPABILITIES = (80, 86, 89, 90, 100, 120)
SHARED_BYTES = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""Most that a block can have, in KiB: CUDA C++ programming guide, technical specifications per capability."""

LAYER = (6304, 3072, 768)
"""M, N, K of ViT-B/16's first layer of an MLP, 32 images."""


@pytest.fixture(scope="module")
def compiled(compiled_all) -> dict[str, CompiledKernel]:
    """Codes and floats in tiles of the same bytes, for every capability."""
    specs = {
        "int8": kernel_of(plain_codes(*LAYER), TileConfig(128, 64, 128, 4, 3)),
        "float16": kernel_of(plain_floats(*LAYER), TileConfig(128, 64, 64, 4, 3)),
        "int8 rows": kernel_of(scaled_rows(*LAYER), TileConfig(128, 64, 128, 4, 3)),
        "int8 gate": kernel_of(gated_codes(*LAYER), TileConfig(128, 64, 128, 4, 3)),
        "bfloat16": kernel_of(
            replace(plain_floats(*LAYER), dtype="bfloat16", outputs=("bfloat16",)),
            TileConfig(128, 64, 64, 4, 3),
        ),
        "float16 gate": kernel_of(gated_floats(*LAYER), TileConfig(128, 64, 64, 4, 3)),
    }
    return dict(zip(specs, compiled_all(list(specs.values()), CAPABILITIES), strict=True))


def instructions(cubin: bytes, folder: Path) -> set[str]:
    """Names of the machine's products, copies into shared memory, exchanges between threads, and accesses to
    spilled values."""
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    command = [knobs.nvidia.nvdisasm.path, "-c", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"\b(?:[A-Z]*MMA|LDGSTS|STL|LDL|SHFL)\b[\w.]*", text))


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("dtype", ["int8", "int8 rows", "float16", "bfloat16", "int8 gate", "float16 gate"])
def test_it_compiles_everywhere(
    compiled: dict[str, CompiledKernel], dtype: str, capability: int, tmp_path: Path
):
    kernel = compiled[dtype]
    assert 0 < kernel.shared_bytes[capability] <= SHARED_BYTES[capability] * 1024
    used = instructions(kernel.cubins[capability], tmp_path)
    assert any("MMA" in name for name in used)
    assert "LDGSTS.E.BYPASS.128" in used  # copies of 16 bytes run ahead of the products
    assert not any(name.startswith(("STL", "LDL")) for name in used)


@pytest.mark.parametrize("dtype", ["int8 gate", "float16 gate"])
def test_the_halves_of_a_gate_meet_in_registers(
    compiled: dict[str, CompiledKernel], dtype: str, tmp_path: Path
):
    for capability in CAPABILITIES:
        used = instructions(compiled[dtype].cubins[capability], tmp_path)
        assert not any(name.startswith("SHFL") for name in used), capability


@pytest.mark.parametrize(
    ("dtype", "capability", "product"),
    [
        ("int8", 80, "IMMA.16832.S8.S8"),  # mma.sync m16n8k32 of s8
        ("int8", 90, "IGMMA.64x64x32.S8.S8"),  # wgmma m64n64k32 of s8
        ("float16", 80, "HMMA.16816.F32"),
        ("float16", 90, "HGMMA.64x64x16.F32"),
        ("bfloat16", 90, "HGMMA.64x64x16.F32.BF16"),
    ],
)
def test_products_are_those_of_the_tensor_cores(
    compiled: dict[str, CompiledKernel], dtype: str, capability: int, product: str, tmp_path: Path
):
    used = instructions(compiled[dtype].cubins[capability], tmp_path)
    assert any(name.startswith(product) for name in used), used


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [plain_codes, both_forms, heavy_codes, plain_floats, heavy_floats, gated_codes]
)
def test_no_tile_spills_on_hopper(compiled_all, make):
    h200 = gpu_named("H200")
    problem: GemmProblem = make(*LAYER)
    tiles = configs(problem, h200)
    kernels = compiled_all([kernel_of(problem, tile) for tile in tiles], (90,))
    spilled = [tile.name for tile, kernel in zip(tiles, kernels, strict=True) if kernel.spills]
    assert not spilled
    assert all(kernel.registers > 32 for kernel in kernels)  # the compiler did say
    for tile, kernel in zip(tiles, kernels, strict=True):
        assert kernel.shared_bytes[90] <= tile.shared_bytes(problem.dtype) + 1024
