# SPDX-License-Identifier: Apache-2.0
"""Our norms over groups of channels compiled for GPUs that are not here: wide loads, nothing spills."""

from pathlib import Path

import pytest

from quantrt.gpu import gpu_named
from quantrt.kernels.group_norm.spec import GroupNormProblem, TileConfig, kernels_of, part_rows, why_not
from quantrt.kernels.group_norm.tiles import configs, cost, estimate_us
from quantrt.kernels.kernel import CompiledKernel
from quantrt.regions.expression import IDENTITY
from tests.kernels.convolutions.test_conv2d_compiled import CAPABILITIES, instructions
from tests.kernels.memory_bound.group_norms import silu_to_codes

H200 = gpu_named("H200")


def problem(C: int = 320, HW: int = 128 * 128, *, to_codes: bool = True, shift: str = "") -> GroupNormProblem:
    """A norm of the SDXL UNet at batch 2, 1024 x 1024 pixels."""
    epilogue = silu_to_codes() if to_codes else IDENTITY
    outputs = ("int8",) if to_codes else ("float16",)
    return GroupNormProblem(2, HW, C, 32, "float16", epilogue, (), outputs, (), shift)


@pytest.fixture(scope="module")
def compiled(compiled_all) -> dict[str, CompiledKernel]:
    """The kernels of both ways, for codes behind SiLU, with something added to x."""
    one = problem(C=1280, HW=32 * 32, shift="float16")
    specs = [
        *kernels_of(one, TileConfig(32, 64, 4, is_whole=True)),
        *kernels_of(one, TileConfig(64, 64, 8, is_whole=False)),
    ]
    return dict(zip([spec.function for spec in specs], compiled_all(specs, CAPABILITIES), strict=True))


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("function", ["whole_groups", "sum_parts", "merge_parts", "normalize"])
def test_it_compiles_everywhere(
    compiled: dict[str, CompiledKernel], function: str, capability: int, tmp_path: Path
):
    kernel = compiled[function]
    loads = {x for x in instructions(kernel.cubins[capability], tmp_path) if x.startswith("LDG")}
    assert kernel.spills == 0 and kernel.registers > 0
    if function in ("sum_parts", "normalize", "whole_groups"):
        assert any(x.startswith("LDG.E.128") for x in loads), loads


@pytest.mark.parametrize(
    ("C", "HW", "least_us", "most_us"),
    [(320, 128**2, 7.0, 24.0), (640, 64**2, 3.5, 18.0), (1280, 32**2, 1.8, 14.0)],
)
def test_the_predicted_time_is_that_of_its_bytes_and_its_launches(
    C: int, HW: int, least_us: float, most_us: float
):
    one = problem(C, HW)
    found = cost(one, H200)
    assert found.size_bytes == 2 * HW * C * 3
    assert found.time_us >= least_us
    tiles = configs(one, H200)
    assert {tile.is_whole for tile in tiles} == {True, False}
    times = [estimate_us(one, tile, H200) for tile in tiles]
    assert times == sorted(times)
    assert found.time_us < times[0] < most_us


def test_parts_are_whole_tiles():
    assert part_rows(16384, 26, 64) == 640
    assert part_rows(16384, 1000, 64) == 64
    assert part_rows(5, 0, 32) == 32
    assert part_rows(0, 4, 32) == 32


def test_what_no_kernel_computes():
    assert why_not(problem()) is None
    assert "33" in str(why_not(problem(C=33)))
    assert why_not(problem(C=32 * 8192)) == "groups of 8192 channels: at most 4096"
