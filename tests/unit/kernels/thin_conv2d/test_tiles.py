# SPDX-License-Identifier: Apache-2.0
"""Tiles of a convolution of few channels: they fit the device, the whole window is in their lines."""

from dataclasses import replace

import pytest

from quantrt.gpu import GPUS, GpuFacts, gpu_named
from quantrt.kernels.conv2d.tiles import cost
from quantrt.kernels.thin_conv2d.spec import line_width, output_size, why_not, window_lines
from quantrt.kernels.thin_conv2d.tiles import bordered_bytes, configs, estimate_us, programs_of
from tests.conv_layers import layer

H200 = gpu_named("H200")
STEM = layer(224, 3, 64, 7, strides=(2, 2))
SMALL = replace(STEM, N=32, R=3, S=3, pads=(0, 0, 1, 1))
PROBLEMS = {
    "int8": STEM,
    "float16": replace(STEM, dtype="float16", outputs=("float16",)),
    "small codes": SMALL,
    "small": replace(SMALL, dtype="float16", outputs=("float16",)),
    "dense": replace(SMALL, strides=(1, 1), outputs=("int8", "float16")),
    "line": replace(STEM, H=1, R=1, S=9, strides=(1, 2), pads=(0, 4, 0, 4)),
}


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS if gpu.capability >= 80], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("name", PROBLEMS)
def test_tiles_fit(name: str, gpu: GpuFacts):
    problem = PROBLEMS[name]
    assert why_not(problem, gpu) is None
    found = configs(problem, gpu)
    assert 1 <= len(found) <= 6
    assert len({config.name for config in found}) == len(found)
    for config in found:
        resident, rest = divmod(programs_of(problem, config, gpu), gpu.multiprocessors)
        assert rest == 0 and resident >= 1
        assert resident * config.shared_bytes(problem) <= gpu.shared_memory_bytes
        assert config.block_n >= min(problem.N, 128)


@pytest.mark.parametrize("name", PROBLEMS)
def test_lines_cover_the_window(name: str):
    problem = PROBLEMS[name]
    lines = window_lines(problem)
    assert [first for first, _ in lines] == [sum(n for _, n in lines[:i]) for i in range(len(lines))]
    assert problem.R <= sum(count for _, count in lines) <= problem.R + 1
    assert all(count & (count - 1) == 0 and count * line_width(problem) >= 32 for _, count in lines)
    assert 4 * problem.S <= line_width(problem) <= 8 * problem.S


def test_the_estimate_stays_above_what_memory_takes():
    assert output_size(STEM) == (112, 112)
    for problem in PROBLEMS.values():
        for config in configs(problem, H200):
            assert bordered_bytes(problem, config) >= problem.images * problem.H * problem.W * 4
            assert cost(problem, H200).time_us < estimate_us(problem, config, H200) < 100


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"C": 5}, "5 channels"),
        ({"dilations": (1, 2)}, "dilated"),
        ({"R": 16, "S": 16}, "1024 elements"),
        ({"S": 2}, "2 pixels"),
        ({"pads": (0, 0, -1, 0)}, "cut off"),
        ({"dtype": "float32"}, "float32"),
    ],
)
def test_what_it_cannot_do(changes: dict[str, object], reason: str):
    assert reason in (why_not(replace(STEM, **changes), H200) or "")
