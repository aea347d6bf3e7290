# SPDX-License-Identifier: Apache-2.0
"""Pools over windows and over whole images, with the elementwise nodes behind them."""

import numpy as np
import pytest

from quantrt.regions.formula_json import from_json, to_json
from quantrt.regions.region import Pool
from tests.unit.model.check_pass import random_feeds
from tests.unit.regions.check_partition import check_values, partitioned

FLOAT32 = 2e-6

WINDOWS = {
    "max": "MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>",
    "dilated": "MaxPool<kernel_shape=[2,3], dilations=[2,1], strides=[1,2]>",
    "ceil": "MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>",
    "average": "AveragePool<kernel_shape=[3,2], strides=[2,1], pads=[1,0,0,1]>",
    "with padding": "AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>",
    "same upper": 'AveragePool<kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_UPPER">',
    "same lower": 'MaxPool<kernel_shape=[2,2], strides=[2,2], auto_pad="SAME_LOWER">',
    "valid": 'MaxPool<kernel_shape=[2,2], strides=[2,2], auto_pad="VALID">',
}

IMAGES = {
    "average": "GlobalAveragePool(x)",
    "max": "GlobalMaxPool(x)",
    "reduced": "ReduceMean<axes=[2,3]>(x)",
    "dropped": "ReduceMean<axes=[-1,-2], keepdims=0>(x)",
    "largest": "ReduceMax<axes=[3,2], keepdims=0>(x)",
    "one window": "AveragePool<kernel_shape=[5,6]>(x)",
}


@pytest.mark.parametrize("case", WINDOWS)
def test_windows(case, rng):
    found = partitioned(
        f"p = {WINDOWS[case]}(x) y = Relu(p)", inputs="float[N,4,7,9] x", outputs="float[N,4,P,Q] y"
    )
    (kind,) = found.kinds()
    assert kind.startswith("Pool:") and kind.endswith(" Relu")
    formula = found.only(Pool).formula
    assert not formula.is_global
    assert from_json(to_json(formula)) == formula
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize("case", IMAGES)
def test_whole_images(case, rng):
    found = partitioned(f"p = {IMAGES[case]} y = HardSwish(p)", inputs="float[N,4,5,6] x")
    assert [kind.split(":")[0] for kind in found.kinds()] == ["Pool"]
    assert found.only(Pool).formula.is_global
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_sizes_need_not_be_known(rng):
    found = partitioned(
        "p = MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x) y = GlobalAveragePool(p)",
        inputs="float[N,4,H,W] x",
        outputs="float[N,4,1,1] y",
    )
    assert found.kinds() == ["Pool: MaxPool", "Pool: GlobalAveragePool"]
    check_values(found, {"x": rng.standard_normal((2, 4, 11, 8)).astype(np.float32)}, tolerance=FLOAT32)


def test_constants_per_channel_are_absorbed(rng):
    weights = {"b": rng.standard_normal((4, 1, 1)).astype(np.float32)}
    for body in (
        "p = MaxPool<kernel_shape=[2,2]>(x) y = Mul(p, b)",
        "p = GlobalAveragePool(x) y = Add(p, b)",
    ):
        found = partitioned(body, inputs="float[N,4,5,6] x", weights=weights)
        assert [kind.split(":")[0] for kind in found.kinds()] == ["Pool"]
        check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_a_sum_of_a_convolution_and_a_pool_belongs_to_the_convolution(rng):
    weights = {"w": rng.standard_normal((4, 4, 1, 1)).astype(np.float32)}
    found = partitioned(
        "c = Conv(x, w) p = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(x) y = Add(p, c)", weights=weights
    )
    assert sorted(found.kinds()) == ["Conv: Conv Add", "Pool: AveragePool"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize(
    ("body", "inputs", "reason"),
    [
        ("y, i = MaxPool<kernel_shape=[2,2]>(x) z = Cast<to=1>(i)", "float[1,4,5,6] x", "a second output"),
        ("y = MaxPool<kernel_shape=[2,2,2]>(x)", "float[1,4,5,6,7] x", "windows have 3 axes"),
        ("y = GlobalMaxPool(x)", "float[1,C,5,6] x", "number of its channels"),
        ('y = MaxPool<kernel_shape=[2,2], auto_pad="SAME_UPPER">(x)', "float[1,4,H,6] x", "size that is not"),
    ],
)
def test_what_no_kernel_pools_stays_a_node(body, inputs, reason):
    outputs = "float[a,b,c,d] y, float[a,b,c,d] z" if "z =" in body else "y"
    options = {"outputs": outputs} if "z =" in body else {}
    found = partitioned(body, inputs=inputs, **options)
    assert found.kinds()[0].startswith("Nodes:")
    assert any(reason in text for text in found.reasons("pool")), found.reasons("pool")


def test_a_mean_over_the_last_of_three_axes_is_one_of_rows():
    found = partitioned("y = ReduceMean<axes=[2]>(x)", inputs="float[2,4,5] x")
    assert found.kinds() == ["Rows: ReduceMean"]
