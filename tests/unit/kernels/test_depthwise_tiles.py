# SPDX-License-Identifier: Apache-2.0
"""Tiles of a depthwise convolution."""

from dataclasses import replace

import pytest

from quantrt.gpu import GPUS, GpuFacts, gpu_named
from quantrt.kernels.depthwise.spec import kernel_of, why_not
from quantrt.kernels.depthwise.tiles import configs, cost, estimate_us
from tests.conv_layers import layer

H200 = gpu_named("H200")
LAYER = layer(56, 144, 144)
PROBLEMS = {
    "layer": LAYER,
    "float": replace(LAYER, dtype="float16", outputs=("float16",)),
    "one": replace(LAYER, images=1, H=1, W=1, C=1, N=1),
    "empty": replace(LAYER, images=0),
    "odd": replace(LAYER, C=33, N=33, H=7, W=5, R=5, S=7),
}


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("name", PROBLEMS)
def test_tiles(name: str, gpu: GpuFacts):
    problem = PROBLEMS[name]
    found = configs(problem, gpu)
    assert 1 <= len(found) <= 8
    assert len({config.name for config in found}) == len(found)
    times = [estimate_us(problem, config, gpu) for config in found]
    assert times == sorted(times)
    assert times[0] >= cost(problem, gpu).time_us


def test_memory_bounds_it():
    found = cost(LAYER, H200)
    assert found.flops == 2 * 9 * 32 * 56 * 56 * 144
    assert found.size_bytes == 2 * 32 * 56 * 56 * 144 + 9 * 144
    assert found.time_us == pytest.approx(found.size_bytes / (875 * H200.bandwidth_gb_s))


def test_a_kernel_does_not_depend_on_batch_or_image():
    config = configs(LAYER, H200)[0]
    assert kernel_of(LAYER, config) == kernel_of(replace(LAYER, images=1, H=99, W=3), config)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": "float32"}, "float32"),
        ({"N": 288}, "144 channels in and 288 out"),
        ({"R": 9, "S": 9}, "81 taps"),
        ({"N": 0, "C": 0}, "empty"),
        ({"W": 2**24}, "32 bits"),
        ({"outputs": ("int8",) * 5}, "5 outputs"),
    ],
)
def test_reasons(changes: dict, reason: str):
    assert why_not(LAYER) is None
    assert reason in (why_not(replace(LAYER, **changes)) or "")
