# SPDX-License-Identifier: Apache-2.0
"""Channels are scaled without a change of the outputs, where scales are free and something is gained."""

import numpy as np
import pytest

from quantrt.ir.clone import clone
from quantrt.quantize.algorithms.channel_edges import find_edges
from quantrt.quantize.algorithms.equalization import (
    LEAST_RATIO,
    SUFFIX,
    choose_scales,
    equalized_values,
    scale_channels,
    without_streams,
)
from tests.nets import net, nodes, resnet, run_ort, samples, weights

IMAGES = (8, 4, 6, 6)
UNEVEN = np.array([1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001], np.float32)
"""Ranges of the eight channels between two layers."""

CASES = {
    "depthwise": "h = Conv(x, w, b) r = Relu(h) y = Conv<group=8>(r, d)",
    "convolution": "h = Conv(x, w, b) r = Relu(h) y = Conv(r, v)",
    "no bias, no activation": "h = Conv(x, w) y = Conv(h, v)",
    "groups": "h = Conv<group=2>(x, g, b) r = LeakyRelu(h) y = Conv<group=4>(r, q)",
    "pooled": "h = Conv(x, w, b) r = Relu(h) p = MaxPool<kernel_shape=[2,2]>(r) y = Conv(p, v)",
    "classifier": "h = Conv(x, w, b) p = GlobalAveragePool(h) f = Flatten(p) y = Gemm(f, m)",
    "two readers": "h = Conv(x, w, b) r = Relu(h) s = Conv(r, v) t = Conv(r, w2) y = Concat<axis=1>(s, t)",
}
SHAPES = {
    "w": (8, 4, 1, 1),
    "b": (8,),
    "d": (8, 1, 3, 3),
    "v": (5, 8, 1, 1),
    "g": (8, 2, 1, 1),
    "q": (8, 2, 1, 1),
    "m": (8, 5),
    "w2": (3, 8, 1, 1),
}


def constants(body: str) -> dict[str, np.ndarray]:
    """Those that a net's body names, the first layer's of uneven size."""
    arrays = weights(SHAPES)
    for name in ("w", "g"):
        arrays[name] *= UNEVEN.reshape(-1, 1, 1, 1)
    arrays["b"] *= UNEVEN
    arrays |= {"lo": np.array(0, np.float32), "hi": np.array(6, np.float32)}
    return {name: array for name, array in arrays.items() if f" {name})" in body or f" {name}," in body}


def uneven_net(body: str):
    shape = "float[N,5]" if "Gemm" in body else "float[N,c,i,j]"
    return net(f"net (float[N,4,6,6] x) => ({shape} y) {{ {body} }}", constants(body))


def with_output(graph, name):
    """A clone that also gives a value."""
    changed = clone(graph)
    changed.graph.outputs.append(next(v for node in changed.graph for v in node.outputs if v.name == name))
    return changed


def equalized(model, inputs):
    scales = choose_scales(model.graph, [inputs], qmax=127)
    return scales, scale_channels(model.graph, scales)


@pytest.mark.parametrize("body", CASES.values(), ids=CASES)
def test_the_outputs_stay_and_the_channels_come_closer(body: str):
    model = uneven_net(body)
    inputs = {"x": samples(*IMAGES)}
    scales, graph = equalized(model, inputs)
    (scale,) = scales.values()
    assert scale.shape == (8,) and scale.max() == 1 and scale.min() < 0.5
    want, got = run_ort(model.graph, inputs)[0], run_ort(graph, inputs)[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def test_a_normalization_is_scaled_for_all_products_that_read_it():
    text = """net (float[N,7,8] x) => (float[N,7,5] y) {
      h = LayerNormalization<axis=-1>(x, gamma, beta) a = MatMul(h, m) b = MatMul(h, n) y = Add(a, b) }"""
    arrays = weights({"gamma": (8,), "beta": (8,), "m": (8, 5), "n": (8, 5)})
    arrays["gamma"] = UNEVEN
    arrays["beta"] *= 0
    model, inputs = net(text, arrays), {"x": samples(16, 7, 8)}
    scales, graph = equalized(model, inputs)
    assert len(scales) == 1
    np.testing.assert_allclose(
        run_ort(graph, inputs)[0], run_ort(model.graph, inputs)[0], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    "body",
    [
        "h = Conv(x, w, b) r = Clip(h, lo, hi) y = Conv(r, v)",
        "h = Conv(x, w, b) r = Sigmoid(h) y = Conv(r, v)",
        "h = Conv(x, w, b) r = Relu(h) s = Conv(r, v) z = Sigmoid(r) y = Concat<axis=1>(s, z)",
        "h = Conv(x, w, b) y = Relu(h)",
    ],
    ids=["clipped", "not homogeneous", "read by others", "an output"],
)
def test_what_would_change_is_left_alone(body: str):
    assert choose_scales(uneven_net(body).graph, [{"x": samples(*IMAGES)}], qmax=127) == {}


def test_a_product_over_another_axis_than_the_channels_is_left_alone():
    arrays = constants("h = Conv(x, w, b) y = MatMul(h, m)")  # as many columns as channels
    model = net("net (float[N,4,6,8] x) => (float[N,8,6,5] y) { h = Conv(x, w, b) y = MatMul(h, m) }", arrays)
    assert choose_scales(model.graph, [{"x": samples(8, 4, 6, 8)}], qmax=127) == {}


def test_even_channels_are_left_alone():
    arrays = {"w": np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1), "v": weights({"v": (5, 4, 1, 1)})["v"]}
    model = net("net (float[N,4,6,6] x) => (float[N,5,6,6] y) { h = Conv(x, w) y = Conv(h, v) }", arrays)
    assert choose_scales(model.graph, [{"x": samples(64, 4, 6, 6)}], qmax=127) == {}


def test_channels_that_calibration_never_saw_get_a_bounded_scale():
    arrays = constants(CASES["depthwise"])
    arrays["w"][3] = 0
    arrays["b"][3] = 0
    model = net(f"net (float[N,4,6,6] x) => (float[N,8,i,j] y) {{ {CASES['depthwise']} }}", arrays)
    (scale,) = choose_scales(model.graph, [{"x": samples(*IMAGES)}], qmax=127).values()
    assert scale[3] >= LEAST_RATIO


def test_values_whose_squares_leave_float32_are_scaled_like_others():
    model = uneven_net(CASES["no bias, no activation"])
    inputs = samples(*IMAGES)
    (plain,), (large,) = (
        choose_scales(model.graph, [{"x": inputs * np.float32(2.0**power)}], qmax=127).values()
        for power in (0, 80)
    )
    np.testing.assert_array_equal(large, plain)


def test_values_that_differ_are_called_differently_and_the_float_graph_stays():
    model, inputs = uneven_net(CASES["depthwise"]), {"x": samples(*IMAGES)}
    before = [value.name for node in model.graph.graph for value in node.outputs]
    scales, graph = equalized(model, inputs)
    names, readers = equalized_values(graph, scales)
    assert names == (f"h{SUFFIX}", f"r{SUFFIX}")
    assert [value.name for node in model.graph.graph for value in node.outputs] == before
    reader = nodes(graph, "Conv")[1].name
    np.testing.assert_array_equal(readers[reader], next(iter(scales.values())))


STREAM = """net (float[N,4,6,6] x) => (float[N,3,6,6] y) {
  a = Conv(x, w0, b0)
  p = Conv(a, w1, b1)  r = Relu(p)  c = Conv<group=8, pads=[1,1,1,1]>(r, w2)  d = Conv(c, w3)
  s = Add(a, d)
  q = Conv(s, w4)  t = Add(s, q)  u = Relu(t)
  y = Conv(u, w5) }"""
"""A stream of 8 channels: a, s and t, with a branch through others and one that both reads and adds to it."""

STREAM_SHAPES = {
    "w0": (8, 4, 1, 1),
    "b0": (8,),
    "w1": (8, 8, 1, 1),
    "b1": (8,),
    "w2": (8, 1, 3, 3),
    "w3": (8, 8, 1, 1),
    "w4": (8, 8, 1, 1),
    "w5": (3, 8, 1, 1),
}


def stream_net():
    """The channels of the stream are of uneven size, and the weights that read them make up for it."""
    arrays = weights(STREAM_SHAPES)
    for name in ("w0", "w3", "w4"):
        arrays[name] *= UNEVEN.reshape(-1, 1, 1, 1)
    arrays["b0"] *= UNEVEN
    for name in ("w1", "w4", "w5"):
        arrays[name] /= UNEVEN.reshape(1, -1, 1, 1)
    return net(STREAM, arrays)


def test_a_residual_stream_is_scaled_by_all_that_add_to_it_for_all_that_read_it():
    model, inputs = stream_net(), {"x": samples(*IMAGES)}
    scales, graph = equalized(model, inputs)
    first = nodes(model.graph, "Conv")[0].name
    assert first in scales and scales[first].min() < 0.05
    edge = find_edges(model.graph.graph)[first]
    assert edge.is_stream and [value.name for value in edge.rounded] == ["a", "d", "s", "q", "u"]
    assert (len(edge.layers), len(edge.readers)) == (3, 3)
    want, got = run_ort(model.graph, inputs)[0], run_ort(graph, inputs)[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    ranges = np.abs(run_ort(with_output(graph, f"s{SUFFIX}"), inputs)[-1]).max(axis=(0, 2, 3))
    assert (
        ranges.max() / ranges[:-1].min() < 20
    )  # 50 to 1 before; the last is below what calibration can tell
    assert set(without_streams(model.graph, scales)) == set(scales) - {first}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("s = Add(a, d)", "m = Sigmoid(d) s = Add(a, m)"),
        ("s = Add(a, d)", "z = Clip(a, lo, hi) s = Add(z, d)"),
        ("u = Relu(t)", "v = Sigmoid(t) u = Mul(t, v)"),
        ("s = Add(a, d)", "s = Add(a, one)"),
    ],
    ids=["a branch is bounded", "the stream is clipped", "a gate", "a constant is added"],
)
def test_a_stream_with_something_else_on_it_is_left_alone(old: str, new: str):
    arrays = weights(STREAM_SHAPES) | {
        "lo": np.float32(0),
        "hi": np.float32(6),
        "one": np.ones((1, 8, 1, 1), "f"),
    }
    text = STREAM.replace(old, new)
    used = {
        name: np.asarray(array)
        for name, array in arrays.items()
        if f" {name})" in text or f" {name}," in text
    }
    model = net(text, used)
    assert not any(edge.is_stream for edge in find_edges(model.graph.graph).values())


def test_even_streams_are_left_alone():
    model, inputs = resnet(), {"x": samples(8, 3, 16, 16)}
    scales, graph = equalized(model, inputs)
    assert set(without_streams(model.graph, scales)) == set(scales)
    np.testing.assert_allclose(
        run_ort(graph, inputs)[0], run_ort(model.graph, inputs)[0], rtol=1e-4, atol=1e-5
    )
