# SPDX-License-Identifier: Apache-2.0
"""X' X of layers: what their weights are multiplied with, row by row."""

import numpy as np
import pytest

from quantrt.errors import ModelError
from quantrt.quantize.algorithms import layer_inputs
from quantrt.quantize.algorithms.layer_inputs import as_matrix, from_matrix, observe_grams
from tests.nets import net, run_ort, samples, weights

PRODUCTS = """net (float[N,12] x) => (float[N,5] z) {
  h = MatMul(x, w)
  z = Gemm<transB=1>(h, v)
}"""


def layers(model, *op_types):
    return [node for node in model.graph.graph if node.op_type in op_types]


def test_products_read_rows(rng):
    model = net(PRODUCTS, weights({"w": (12, 7), "v": (5, 7)}))
    x = samples(40, 12)
    found = dict(observe_grams(model.graph, layers(model, "MatMul", "Gemm"), [{"x": x[:8]}, {"x": x[8:]}]))
    h = x @ model.graph.graph.initializers["w"].const_value.numpy()
    for got, rows in zip(found.values(), (x, h), strict=True):
        np.testing.assert_allclose(got, (rows.T @ rows)[None] / 40, rtol=1e-4, atol=1e-5)


def test_centred_ones_are_covariances():
    model = net(PRODUCTS, weights({"w": (12, 7), "v": (5, 7)}))
    x = samples(40, 12) + 5
    first, second = layers(model, "MatMul", "Gemm")
    found = dict(observe_grams(model.graph, [first, second], [{"x": x[:8]}, {"x": x[8:]}], [first]))
    np.testing.assert_allclose(found[first], np.cov(x.T, bias=True)[None], rtol=1e-4, atol=1e-4)
    h = x @ model.graph.graph.initializers["w"].const_value.numpy()
    np.testing.assert_allclose(found[second], (h.T @ h)[None] / 40, rtol=1e-4)


@pytest.mark.parametrize(
    "attributes",
    [
        "pads=[1,1,1,1]",
        "strides=[2,1], dilations=[1,2], pads=[1,0,1,2]",
        'auto_pad="SAME_UPPER", strides=[2,2]',
        'auto_pad="SAME_LOWER", strides=[2,2]',
        "group=2",
        "group=4",
    ],
)
def test_the_error_of_a_convolution_is_that_of_its_matrix(attributes: str):
    group = int(attributes[-1]) if "group" in attributes else 1
    arrays = weights({"w": (8, 4 // group, 3, 3)})
    model = net(f"net (float[N,4,9,8] x) => (float[N,8,P,Q] y) {{ y = Conv<{attributes}>(x, w) }}", arrays)
    x, w = {"x": samples(2, 4, 9, 8)}, arrays["w"]
    ((node, gram),) = observe_grams(model.graph, layers(model, "Conv"), [x])
    matrix = as_matrix(w, node)
    assert matrix.shape == (group, 4 // group * 9, 8 // group)
    np.testing.assert_array_equal(from_matrix(matrix, node, w.shape), w)
    (y,) = run_ort(model.graph, x)
    power = np.einsum("gkn,gkl,gln->gn", matrix, gram, matrix).reshape(-1)
    np.testing.assert_allclose(power, np.square(y).mean(axis=(0, 2, 3)), rtol=1e-4)


def test_of_large_images_some_windows_are_taken_and_always_the_same(monkeypatch):
    monkeypatch.setattr(layer_inputs, "WINDOWS", 200)
    text = "net (float[N,2,32,32] x) => (float[N,3,32,32] y) { y = Conv<pads=[1,1,1,1]>(x, w) }"
    model, x = net(text, weights({"w": (3, 2, 3, 3)})), {"x": samples(8, 2, 32, 32)}
    ((_, some),) = observe_grams(model.graph, layers(model, "Conv"), [x])
    ((_, same),) = observe_grams(model.graph, layers(model, "Conv"), [x])
    np.testing.assert_array_equal(some, same)
    monkeypatch.setattr(layer_inputs, "WINDOWS", 1 << 20)
    ((_, every),) = observe_grams(model.graph, layers(model, "Conv"), [x])
    assert 0 < np.abs(some - every).max() < 0.2


def test_bounded_memory_gives_the_same_matrices(monkeypatch):
    model = net(PRODUCTS, weights({"w": (12, 7), "v": (5, 7)}))
    nodes, batches = layers(model, "MatMul", "Gemm"), [{"x": samples(8, 12)}]
    whole = list(observe_grams(model.graph, nodes, batches))
    monkeypatch.setattr(layer_inputs, "GRAM_BYTES", 1)
    parts = list(observe_grams(model.graph, nodes, batches))
    assert [node for node, _ in whole] == [node for node, _ in parts] == nodes
    for (_, one), (_, other) in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_inputs_that_are_not_finite_are_refused():
    model = net(PRODUCTS, weights({"w": (12, 7), "v": (5, 7)}))
    x = samples(8, 12)
    x[3, 4] = np.nan
    with pytest.raises(ModelError, match="'MatMul_0' reads is not finite"):
        list(observe_grams(model.graph, layers(model, "MatMul"), [{"x": x}]))
