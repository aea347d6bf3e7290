# SPDX-License-Identifier: Apache-2.0
"""Patches of a depthwise convolution."""

from dataclasses import replace

import pytest

from quantrt.gpu import GPUS, GpuFacts, gpu_named
from quantrt.kernels.depthwise.tiles import cost
from quantrt.kernels.depthwise_patches.spec import PatchTile, kernel_of, patches_of, why_not
from quantrt.kernels.depthwise_patches.tiles import configs, estimate_us
from tests.conv_layers import layer

H200 = gpu_named("H200")
LAYER = layer(56, 144, 144)
PROBLEMS = {
    "layer": LAYER,
    "float": replace(LAYER, dtype="float16", outputs=("float16",)),
    "strides": replace(LAYER, strides=(2, 2)),
    "5x5": replace(LAYER, R=5, S=5, pads=(2, 2, 2, 2)),
    "one": replace(LAYER, images=1, H=1, W=1, C=4, N=4),
    "empty": replace(LAYER, images=0),
    "largest": replace(LAYER, C=32, N=32, H=7, W=5, R=7, S=7),
}


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("name", PROBLEMS)
def test_patches(name: str, gpu: GpuFacts):
    problem = PROBLEMS[name]
    assert why_not(problem) is None
    found = configs(problem, gpu)
    assert 1 <= len(found) <= 6
    assert len({(tile.rows, tile.columns) for tile in found}) == len(found)
    times = [estimate_us(problem, tile, gpu) for tile in found]
    assert times == sorted(times)
    assert times[0] >= cost(problem, gpu).time_us


def test_small_images_have_small_patches():
    small = replace(LAYER, H=3, W=3, images=1)
    assert all(tile.rows < 6 and tile.columns < 6 for tile in configs(small, H200))


def test_every_output_is_in_a_patch():
    assert patches_of(LAYER, PatchTile(4, 7, 2)) == 32 * 14 * 8 * 36
    assert patches_of(PROBLEMS["float"], PatchTile(3, 56, 2)) == 32 * 19 * 1 * 72


def test_a_kernel_does_not_depend_on_batch_or_image():
    tile = configs(LAYER, H200)[0]
    assert kernel_of(LAYER, tile) == kernel_of(replace(LAYER, images=1, H=99, W=3), tile)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": "float32"}, "float32"),
        ({"N": 146, "C": 146}, "146 channels are no multiple of 4"),
        ({"N": 145, "C": 145, "dtype": "float16"}, "145 channels are no multiple of 2"),
        ({"N": 0, "C": 0}, "empty"),
        ({"images": 2**21}, "patches"),
        ({"dilations": (2, 1)}, "2 apart"),
    ],
)
def test_reasons(changes: dict, reason: str):
    assert reason in (why_not(replace(LAYER, **changes)) or "")
