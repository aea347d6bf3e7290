# SPDX-License-Identifier: Apache-2.0
"""Channels are scaled without a change of the outputs, where scales are free and something is gained."""

import numpy as np
import pytest

from quantrt.quantize.algorithms.equalization import (
    LEAST_RATIO,
    SUFFIX,
    choose_scales,
    equalized_values,
    scale_channels,
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


def test_values_that_differ_are_called_differently_and_the_float_graph_stays():
    model, inputs = uneven_net(CASES["depthwise"]), {"x": samples(*IMAGES)}
    before = [value.name for node in model.graph.graph for value in node.outputs]
    scales, graph = equalized(model, inputs)
    names, readers = equalized_values(graph, scales)
    assert names == (f"h{SUFFIX}", f"r{SUFFIX}")
    assert [value.name for node in model.graph.graph for value in node.outputs] == before
    reader = nodes(graph, "Conv")[1].name
    np.testing.assert_array_equal(readers[reader], next(iter(scales.values())))


def test_a_residual_network_keeps_what_both_branches_read():
    model, inputs = resnet(), {"x": samples(8, 3, 16, 16)}
    scales, graph = equalized(model, inputs)
    first = nodes(model.graph, "Conv")[0].name
    assert first not in scales
    np.testing.assert_allclose(
        run_ort(graph, inputs)[0], run_ort(model.graph, inputs)[0], rtol=1e-4, atol=1e-5
    )
