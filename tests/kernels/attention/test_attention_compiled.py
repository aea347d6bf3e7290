# SPDX-License-Identifier: Apache-2.0
"""Our attention compiled for GPUs that are not here: products of the tensor cores, nothing spills."""

from pathlib import Path

import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.attention.spec import AttentionProblem, kernel_of
from quantrt.kernels.attention.tiles import NEAR_RATIO, configs, cost, estimate_us
from quantrt.regions.expression import Operand
from tests.kernels.convolutions.test_conv2d_compiled import CAPABILITIES, instructions
from tests.kernels.memory_bound.expressions import Builder, scalar

H200 = gpu_named("H200")


def bert(*, mask: str = "added", B: int = 32, S: int = 384) -> AttentionProblem:
    """A layer of BERT-large with a mask for every query, its result as codes."""
    b = Builder(Operand("accumulator"), scalar(0.01))
    return AttentionProblem(
        B=B,
        H=16,
        S=S,
        T=S,
        groups=1,
        D=64,
        dtype="float16",
        unit=16,
        mask=mask,
        mask_dtype="float16" if mask == "added" else "",
        mask_unit=16,
        has_mask_rows=mask == "added",
        is_causal=False,
        epilogue=b.build(b("quantize", 0, 1)),
        outputs=("int8",),
    )


def test_it_compiles_everywhere(compiled_all, tmp_path: Path) -> None:
    problem = bert()
    (kernel,) = compiled_all([kernel_of(problem, configs(problem, H200)[0])], CAPABILITIES)
    assert set(kernel.cubins) == set(CAPABILITIES)
    used = instructions(kernel.cubins[90], tmp_path)
    assert any(name.startswith("HGMMA") for name in used), used
    assert not any(name.startswith("LDG") and name.endswith((".U16", ".U8")) for name in used), used


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["added", "none"])
def test_no_tile_spills_on_hopper(compiled_all, mask: str) -> None:
    problem = bert(mask=mask)
    tiles = configs(problem, H200)
    kernels = compiled_all([kernel_of(problem, tile) for tile in tiles], (90,))
    assert not [tile.name for tile, kernel in zip(tiles, kernels, strict=True) if kernel.spills]
    for kernel in kernels:
        assert kernel.shared_bytes[90] <= H200.shared_memory_bytes


def test_estimates_grow_with_the_work_and_no_tile_is_faster_than_memory() -> None:
    few, many = bert(B=1, S=128), bert()
    assert cost(many, H200).flops == 4 * 32 * 16 * 384 * 384 * 64
    assert cost(many, H200).size_bytes == 32 * 384 * 1024 * (3 * 2 + 1) + 32 * 384 * 384 * 2
    for problem in (few, many):
        times = [estimate_us(problem, config, H200) for config in configs(problem, H200)]
        are_far = [time_us > NEAR_RATIO * min(times) for time_us in times]
        assert are_far == sorted(are_far)
        assert min(times) >= cost(problem, H200).time_us
    assert estimate_us(few, configs(few, H200)[0], H200) < estimate_us(many, configs(many, H200)[0], H200)
