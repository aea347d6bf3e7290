# SPDX-License-Identifier: Apache-2.0
"""Tiles of a convolution: they fit the device, the estimate knows what bounds them."""

from dataclasses import replace

import pytest

from quantrt.gpu import GPUS, GpuFacts, gpu_named
from quantrt.kernels.conv2d.spec import TileConfig, kernel_of, why_not
from quantrt.kernels.conv2d.tiles import configs, cost, estimate_us
from quantrt.regions.expression import IDENTITY, Operand
from tests.conv_layers import layer

H200 = gpu_named("H200")
LAYER = layer(14, 256, 256, tensors=("int8",))
POINT = replace(LAYER, H=56, W=56, C=64, R=1, S=1, pads=(0, 0, 0, 0))
PROBLEMS = {
    "layer": LAYER,
    "float": replace(LAYER, dtype="float16"),
    "point": POINT,
    "first": replace(LAYER, H=224, W=224, C=3, N=64, R=7, S=7, strides=(2, 2), pads=(3, 3, 3, 3)),
    "one": replace(POINT, images=1, H=1, W=1, C=1, N=1),
    "empty": replace(LAYER, images=0),
    "odd": replace(LAYER, C=33, N=41, H=7, W=5),
}


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS if gpu.capability >= 80], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("name", PROBLEMS)
def test_tiles_fit(name: str, gpu: GpuFacts):
    problem = PROBLEMS[name]
    assert why_not(problem, gpu) is None
    found = configs(problem, gpu)
    assert 1 <= len(found) <= 10
    assert len({config.name for config in found}) == len(found)
    assert all(config.shared_bytes(problem.dtype) <= gpu.shared_memory_bytes for config in found)
    times = [estimate_us(problem, config, gpu) for config in found]
    if cost(problem, gpu).is_bound_by_memory:
        assert len({(config.block_m, config.block_n) for config in found}) == len(found)
        assert any(config.accumulators <= 32 for config in found[:6])
    else:
        assert times == sorted(times)
    assert times[0] == min(times) >= cost(problem, gpu).time_us


def test_cost_counts_products_and_bytes():
    found = cost(LAYER, H200)
    assert found.flops == 2 * (32 * 14 * 14) * 256 * (9 * 256)
    assert found.size_bytes == 32 * 14 * 14 * 256 * 3 + 256 * 9 * 256
    strided = replace(LAYER, strides=(2, 2), pads=(1, 0, 1, 0))
    assert cost(strided, H200).flops == 2 * (32 * 7 * 6) * 256 * (9 * 256)


def test_products_bound_a_3x3_and_memory_a_1x1():
    assert not cost(LAYER, H200).is_bound_by_memory
    assert cost(LAYER, H200).time_us == pytest.approx(cost(LAYER, H200).flops / (0.7e6 * H200.int8_tops))
    point = cost(replace(POINT, images=256), H200)
    assert point.is_bound_by_memory
    assert point.time_us == pytest.approx(point.size_bytes / (875 * H200.bandwidth_gb_s))


def test_few_channels_walk_all_taps_at_once():
    assert configs(PROBLEMS["first"], H200)[0].is_packed
    assert not configs(LAYER, H200)[0].is_packed
    assert not any(config.is_packed for config in configs(replace(POINT, C=3), H200))


def test_a_kernel_does_not_depend_on_batch_or_image():
    config = TileConfig(64, 64, 64, 4, 3)
    assert kernel_of(LAYER, config) == kernel_of(replace(LAYER, images=1, H=99, W=3), config)
    assert kernel_of(LAYER, config) != kernel_of(replace(LAYER, C=128), config)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": "float32"}, "float32"),
        ({"dtype": "int8", "C": 2**14}, "overflow"),
        ({"N": 0}, "empty"),
        ({"W": 2**24}, "32 bits"),
        ({"outputs": ("int8",) * 5}, "5 outputs"),
        ({"tensors": ("int64",)}, "int64"),
        ({"epilogue": replace(IDENTITY, row_outputs=(True,))}, "rows"),
        ({"epilogue": replace(IDENTITY, operands=(Operand("tensor"),))}, "accumulator"),
        (
            {"epilogue": replace(IDENTITY, operands=(*IDENTITY.operands, *[Operand("scalar")] * 13))},
            "13 operands",
        ),
    ],
)
def test_reasons(changes: dict, reason: str):
    assert reason in (why_not(replace(LAYER, **changes), H200) or "")


def test_old_gpus_have_no_products():
    assert "75" in (why_not(LAYER, gpu_named("T4")) or "")
