# SPDX-License-Identifier: Apache-2.0
"""Rounding the weights alone shifts each output channel's mean; after correction it does not."""

from collections.abc import Mapping

import numpy as np
import pytest

from quantrt.errors import ModelError
from quantrt.quantize.algorithms.bias_correction import (
    correct_biases,
    observe_channel_means,
)
from quantrt.quantize.scales.qparams import quantize_weight
from tests.nets import constant, net, nodes, run_ort, weights

POSITIVE = np.random.default_rng(3)


def positive(*shape: int) -> np.ndarray:
    """Inputs with a mean of 2, so that an error of a weight moves the output's mean."""
    return (POSITIVE.standard_normal(shape) + 2).astype(np.float32)


CASES = {
    "convolution": (
        "net (float[N,4,6,6] x) => (float[N,8,6,6] y) { y = Conv(x, w, b) }",
        {"w": (8, 4, 1, 1), "b": (8,)},
        (16, 4, 6, 6),
    ),
    "convolution without a bias": (
        "net (float[N,4,6,6] x) => (float[N,8,6,6] y) { y = Conv(x, w) }",
        {"w": (8, 4, 1, 1)},
        (16, 4, 6, 6),
    ),
    "groups": (
        "net (float[N,4,6,6] x) => (float[N,8,6,6] y) { y = Conv<group=2>(x, w, b) }",
        {"w": (8, 2, 1, 1), "b": (8,)},
        (16, 4, 6, 6),
    ),
    "Gemm": (
        "net (float[N,8] x) => (float[N,5] y) { y = Gemm(x, w, b) }",
        {"w": (8, 5), "b": (5,)},
        (64, 8),
    ),
    "Gemm with transposed weights": (
        "net (float[N,8] x) => (float[N,5] y) { y = Gemm<transB=1>(x, w, b) }",
        {"w": (5, 8), "b": (5,)},
        (64, 8),
    ),
    "Gemm without a bias": (
        "net (float[N,8] x) => (float[N,5] y) { y = Gemm(x, w) }",
        {"w": (8, 5)},
        (64, 8),
    ),
    "Gemm with a bias [1, N]": (
        "net (float[N,8] x) => (float[N,5] y) { y = Gemm(x, w, b) }",
        {"w": (8, 5), "b": (1, 5)},
        (64, 8),
    ),
    "product and sum": (
        "net (float[N,7,8] x) => (float[N,7,5] y) { h = MatMul(x, w) y = Add(h, b) }",
        {"w": (8, 5), "b": (5,)},
        (16, 7, 8),
    ),
    "sum and product the other way round": (
        "net (float[N,7,8] x) => (float[N,7,5] y) { h = MatMul(x, w) y = Add(b, h) }",
        {"w": (8, 5), "b": (5,)},
        (16, 7, 8),
    ),
}


def coarse(model) -> dict:
    """4-bit codes of every weight, so that the shift is far above rounding noise."""
    found = {}
    for node in model.graph.graph:
        if node.op_type in ("Conv", "Gemm", "MatMul") and node.inputs[1].const_value is not None:
            axis = 0 if node.op_type == "Conv" or "transB" in node.attributes else 1
            found[(node.name, 1)] = quantize_weight(constant(node.inputs[1]), axis=axis, qmax=7)
    return found


def with_codes(graph, codes: Mapping):
    """The graph with every weight replaced by what its codes stand for."""
    from quantrt.ir.clone import clone
    from quantrt.ir.edit import set_constant_input

    changed = clone(graph)
    for node in list(changed.graph):
        if (node.name, 1) in codes:
            set_constant_input(changed, node, 1, codes[(node.name, 1)].dequantize(), f"{node.name}_rounded")
    return changed


def channel_shift(wanted: np.ndarray, got: np.ndarray, is_map: bool) -> np.ndarray:
    """Absolute mean error of each output channel."""
    axis = 1 if is_map else wanted.ndim - 1
    others = tuple(i for i in range(wanted.ndim) if i != axis)
    return np.abs((got.astype(np.float64) - wanted).mean(axis=others))


@pytest.mark.parametrize("case", CASES)
def test_the_mean_error_of_each_channel_is_taken_back(case: str):
    text, shapes, shape = CASES[case]
    model, inputs = net(text, weights(shapes)), {"x": positive(*shape)}
    codes = coarse(model)
    means = observe_channel_means(model.graph, [inputs])
    corrected = correct_biases(model.graph, codes, means)
    (wanted,) = run_ort(model.graph, inputs)
    (plain,) = run_ort(with_codes(model.graph, codes), inputs)
    (fixed,) = run_ort(with_codes(corrected, codes), inputs)
    before = channel_shift(wanted, plain, is_map=len(shape) == 4)
    after = channel_shift(wanted, fixed, is_map=len(shape) == 4)
    assert before.max() > 1e-3
    assert after.max() < 1e-4 * max(1.0, np.abs(wanted).max())


def test_a_depthwise_kernel_is_corrected_as_if_every_position_saw_the_mean():
    text = "net (float[N,4,6,6] x) => (float[N,4,5,5] y) { y = Conv<group=4>(x, w, b) }"
    model, inputs = net(text, weights({"w": (4, 1, 2, 2), "b": (4,)})), {"x": positive(64, 4, 6, 6)}
    codes = coarse(model)
    corrected = correct_biases(model.graph, codes, observe_channel_means(model.graph, [inputs]))
    (wanted,) = run_ort(model.graph, inputs)
    before = channel_shift(wanted, run_ort(with_codes(model.graph, codes), inputs)[0], is_map=True)
    after = channel_shift(wanted, run_ort(with_codes(corrected, codes), inputs)[0], is_map=True)
    assert after.max() < before.max() / 5


def test_means_over_batches_weigh_every_sample_alike():
    text, shapes, shape = CASES["convolution"]
    model, x = net(text, weights(shapes)), positive(*shape)
    whole = observe_channel_means(model.graph, [{"x": x}])["Conv_0"]
    parts = observe_channel_means(model.graph, [{"x": x[:1]}, {"x": x[1:9]}, {"x": x[9:]}])["Conv_0"]
    np.testing.assert_allclose(parts, whole, rtol=1e-12)
    np.testing.assert_allclose(whole, x.mean(axis=(0, 2, 3), dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize(
    "body",
    ["y = MatMul(x, w)", "h = MatMul(x, w) s = Add(h, h) y = Exp(s)", "h = MatMul(x, w) y = Mul(h, b)"],
    ids=["no sum", "a sum of activations", "a product"],
)
def test_a_product_without_a_bias_stays_as_it_is(body: str):
    arrays = weights({"w": (8, 5), "b": (5,)})
    used = {name: array for name, array in arrays.items() if f", {name})" in body}
    model, inputs = net(f"net (float[N,8] x) => (float[N,5] y) {{ {body} }}", used), {"x": positive(16, 8)}
    means = observe_channel_means(model.graph, [inputs])
    corrected = correct_biases(model.graph, coarse(model), means)
    np.testing.assert_array_equal(run_ort(corrected, inputs)[0], run_ort(model.graph, inputs)[0])


def test_a_bias_that_two_layers_share_is_corrected_for_each():
    text = """net (float[N,8] x) => (float[N,8] y) { h = Gemm(x, w, b) r = Relu(h) y = Gemm(r, v, b) }"""
    model, inputs = net(text, weights({"w": (8, 8), "v": (8, 8), "b": (8,)})), {"x": positive(64, 8)}
    means = observe_channel_means(model.graph, [inputs])
    first, second = nodes(correct_biases(model.graph, coarse(model), means), "Gemm")
    assert not np.array_equal(constant(first.inputs[2]), constant(second.inputs[2]))


def test_a_layer_with_a_transposed_input_is_left_out_whatever_its_batches():
    text = "net (float[8,N] x) => (float[N,5] y) { y = Gemm<transA=1>(x, w, b) }"
    model = net(text, weights({"w": (8, 5), "b": (5,)}))
    batches = [{"x": positive(8, rows)} for rows in (3, 5)]
    assert observe_channel_means(model.graph, batches) == {}


def test_no_samples_give_no_means_and_change_nothing():
    text, shapes, _ = CASES["convolution"]
    model = net(text, weights(shapes))
    means = observe_channel_means(model.graph, [])
    assert means == {}
    (node,) = nodes(correct_biases(model.graph, coarse(model), means), "Conv")
    np.testing.assert_array_equal(constant(node.inputs[2]), constant(nodes(model.graph, "Conv")[0].inputs[2]))


def test_a_batch_that_the_model_cannot_run_is_an_error():
    text, shapes, _ = CASES["convolution"]
    with pytest.raises(ModelError, match="ONNX Runtime cannot run the model"):
        observe_channel_means(net(text, weights(shapes)).graph, [{"x": positive(1, 1, 1, 1)}])


def test_the_float_graph_is_left_as_it_was():
    text, shapes, shape = CASES["convolution without a bias"]
    model = net(text, weights(shapes))
    inputs = {"x": positive(*shape)}
    correct_biases(model.graph, coarse(model), observe_channel_means(model.graph, [inputs]))
    assert len(nodes(model.graph, "Conv")[0].inputs) == 2


def test_codes_of_another_shape_are_not_taken():
    text, shapes, shape = CASES["Gemm"]
    model, inputs = net(text, weights(shapes)), {"x": positive(*shape)}
    means = observe_channel_means(model.graph, [inputs])
    wrong = {name: mean[:3] for name, mean in means.items()}
    corrected = correct_biases(model.graph, coarse(model), wrong)
    np.testing.assert_array_equal(run_ort(corrected, inputs)[0], run_ort(model.graph, inputs)[0])
