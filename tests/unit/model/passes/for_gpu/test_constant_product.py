# SPDX-License-Identifier: Apache-2.0
"""A product with a constant matrix is known in all its spellings, and as nothing else."""

import ml_dtypes
import numpy as np
import pytest

from quantrt.model.passes.for_gpu import constant_product
from quantrt.model.passes.for_gpu.constant_product import product_of, remove_nodes
from tests.nets import net, weights

ARRAYS = weights({"w": (4, 3), "t": (3, 4), "b": (3,), "r": (2, 3)})


def model(body: str):
    arrays = {name: array for name, array in ARRAYS.items() if f" {name})" in body or f" {name}," in body}
    return net(f"net (float[N,4] x) => (float[N,3] y) {{ {body} }}", arrays).graph


@pytest.mark.parametrize(
    ("body", "weight", "has_bias"),
    [
        ("y = MatMul(x, w)", ARRAYS["w"], False),
        ("h = MatMul(x, w) y = Add(h, b)", ARRAYS["w"], True),
        ("h = MatMul(x, w) y = Add(h, r)", ARRAYS["w"], False),
        ("y = Gemm(x, w, b)", ARRAYS["w"], True),
        ("y = Gemm<transB=1>(x, t)", ARRAYS["t"].T, False),
    ],
)
def test_spellings(body: str, weight: np.ndarray, has_bias: bool):
    graph = model(body)
    product = product_of(graph.graph[0], takes_add=True)
    assert product is not None
    np.testing.assert_array_equal(product.weight, weight)
    assert (product.bias is not None) == has_bias
    assert product.result is product.nodes[-1].outputs[0]


@pytest.mark.parametrize(
    "body", ["y = Gemm<alpha=2.0>(x, w)", "y = Gemm(x, w, r)", "y = Add(x, x)", "y = MatMul(x, x)"]
)
def test_what_is_more_or_something_else_is_none(body: str):
    assert product_of(model(body).graph[0], takes_add=True) is None


def test_an_addition_is_left_where_it_is_not_wanted():
    product = product_of(model("h = MatMul(x, w) y = Add(h, b)").graph[0], takes_add=False)
    assert product is not None and len(product.nodes) == 1 and product.bias is None


def test_nodes_go_with_the_constants_that_were_theirs_alone():
    graph = model("h = MatMul(x, w) g = Add(h, b) y = Add(g, b)")
    product = product_of(graph.graph[0], takes_add=True)
    assert product is not None
    graph.graph[2].replace_input_with(0, graph.graph.inputs[0])
    remove_nodes(graph, product.nodes)
    assert [node.op_type for node in graph.graph] == ["Add"]
    assert list(graph.graph.initializers) == ["b"]


@pytest.mark.parametrize("large_bytes", [0, 1 << 30])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_matrices_side_by_side(monkeypatch, dtype, large_bytes):
    monkeypatch.setattr(constant_product, "LARGE_BYTES", large_bytes)
    whole = np.arange(7 * 9).reshape(7, 9).astype(dtype)
    parts = [whole[:, :2], np.asfortranarray(whole[:, 2:3]), whole[:, 3:]]
    found = constant_product.side_by_side(parts)
    assert found.dtype == dtype and found.flags.c_contiguous
    np.testing.assert_array_equal(found, whole)
