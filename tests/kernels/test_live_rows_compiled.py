# SPDX-License-Identifier: Apache-2.0
"""Kernels that stop behind the last row that counts, as machine code."""

import math

import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.attention.spec import AttentionProblem
from quantrt.kernels.attention.spec import kernel_of as attention_kernel
from quantrt.kernels.attention.tiles import configs as attention_tiles
from quantrt.kernels.compile_all import CompileFailure
from quantrt.kernels.gemm.spec import TileConfig
from quantrt.kernels.gemm.spec import kernel_of as gemm_kernel
from quantrt.kernels.gemm_hopper.spec import HopperTile
from quantrt.kernels.gemm_hopper.spec import kernel_of as hopper_kernel
from quantrt.kernels.live_rows import with_live_rows
from quantrt.regions.expression import IDENTITY
from tests.kernels.products.gemm_problems import heavy_codes, plain_codes

LAYER = (12288, 4096, 1024)
PACKED = AttentionProblem(
    B=32, H=16, S=384, T=384, groups=1, D=64, dtype="float16", unit=16, mask="none", mask_dtype="",
    mask_unit=1, has_mask_rows=False, is_causal=False, epilogue=IDENTITY, outputs=("float16",),
    is_packed=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def compiled(compile_kernels):
    whole = {
        "gemm": gemm_kernel(plain_codes(*LAYER), TileConfig(128, 128, 128, 8, 3)),
        "hopper": hopper_kernel(heavy_codes(*LAYER), HopperTile(128, 128, 6)),
    }
    specs = whole | {f"{name} live": with_live_rows(spec) for name, spec in whole.items()}
    specs["attention"] = attention_kernel(PACKED, attention_tiles(PACKED, gpu_named("H200"))[0])
    results = compile_kernels(list(specs.values()), (90,))
    return {name: results[spec] for name, spec in specs.items()}


@pytest.mark.parametrize("name", ["gemm", "hopper"])
def test_stopping_takes_no_more_registers(compiled, name: str):
    kernel, live = compiled[name], compiled[f"{name} live"]
    assert not isinstance(live, CompileFailure), live
    assert live.spills == 0
    # A quotient and a comparison; both fit the room that the tile leaves.
    assert live.registers <= math.ceil(kernel.registers * 1.05)
    assert live.shared_bytes == kernel.shared_bytes


def test_attention_over_samples_behind_each_other_compiles(compiled):
    assert not isinstance(compiled["attention"], CompileFailure), compiled["attention"]
    assert compiled["attention"].spills == 0
