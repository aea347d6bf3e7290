# SPDX-License-Identifier: Apache-2.0
"""Scales spread over the tensors that have the same values."""

import pytest

from quantrt.calibrate.given import share_scales
from quantrt.model.model import Model
from tests.nets import net, weights

MOVED = """net (float[1,4,8,8] x) => (float[1,64,4] y) {
  c = Conv(x, w)
  p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c)
  t = Transpose<perm=[0,2,3,1]>(p)
  r = Reshape(t, shape)
  q = Relu(r)
  y = MatMul(q, v)
}"""


@pytest.fixture
def model() -> Model:
    text = MOVED.replace(
        "r = Reshape(t, shape)", "shape = Constant<value_ints=[1,16,4]>() r = Reshape(t, shape)"
    )
    return net(text.replace("[1,64,4] y", "[1,16,4] y"), weights({"w": (4, 4, 1, 1), "v": (4, 4)}))


def test_what_moves_values_has_the_scale_of_what_it_moves(model: Model):
    given = share_scales(model.graph.graph, {"c": 0.1, "q": 0.3}, "x")
    assert given.scales == {"c": 0.1, "p": 0.1, "t": 0.1, "r": 0.1, "q": 0.3}
    assert given.shared == {"p": "c", "t": "c", "r": "c"}
    assert given.overruled == {}


def test_a_scale_of_its_own_gives_way_to_that_of_what_is_moved(model: Model):
    given = share_scales(model.graph.graph, {"c": 0.1, "p": 0.2, "r": 0.1}, "x")
    assert {given.scales[name] for name in ("c", "p", "t", "r")} == {0.1}
    assert given.overruled == {"p": 0.2}
    assert given.shared == {"p": "c", "t": "c"}


def test_the_scale_of_a_result_is_that_of_its_source_only_where_all_values_are_handed_on(model: Model):
    given = share_scales(model.graph.graph, {"r": 0.1}, "x")
    assert given.scales == {"r": 0.1, "t": 0.1, "p": 0.1}, "a pool drops values: its input may be wider"


def test_results_that_may_be_narrower_keep_scales_of_their_own():
    text = """net (float[1,4] x) => (float[1,2] a, float[1,2] b) { a, b = Split<axis=1>(x, sizes) }"""
    model = net(text.replace("{ ", "{ sizes = Constant<value_ints=[2,2]>() "))
    assert share_scales(model.graph.graph, {"x": 0.1}, "x").scales == {"x": 0.1, "a": 0.1, "b": 0.1}
    own = share_scales(model.graph.graph, {"x": 0.1, "b": 0.05}, "x")
    assert own.scales == {"x": 0.1, "a": 0.1, "b": 0.05}
    assert own.overruled == {}


def test_scales_of_other_tensors_are_left_alone(model: Model):
    given = share_scales(model.graph.graph, {"nowhere": 2.0}, "x")
    assert given.scales == {"nowhere": 2.0}
    assert given.source == "x"
