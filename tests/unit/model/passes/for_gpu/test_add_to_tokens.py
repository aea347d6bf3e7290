# SPDX-License-Identifier: Apache-2.0
"""What is added to tokens that have become an image is added to the tokens: by their product."""

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.ir.sources import sources_of
from quantrt.model.passes.for_gpu.add_to_tokens import add_to_tokens
from quantrt.regions.partition import partition
from quantrt.regions.region import Gemm
from tests.unit.model.check_pass import check_pass, named_model_of, op_types

INPUTS = "float[N,6,4] t, float[N,5,2,3] x"
WEIGHTS = {"w": np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5), "sizes": np.array([0, 2, 3, 5])}
PRODUCT = "p = MatMul(t, w) s = Reshape(p, sizes) i = Transpose<perm=[0,3,1,2]>(s)"


def made(
    body: str, *, inputs: str = INPUTS, outputs: str = "float[...] y", **weights: np.ndarray
) -> ir.Model:
    return named_model_of(body, inputs=inputs, outputs=outputs, weights=WEIGHTS | weights)


def checked(model: ir.Model, rng: np.random.Generator, changes: int) -> ir.Model:
    return check_pass(add_to_tokens, model, rng, changes=changes, rtol=0, atol=0)


@pytest.mark.parametrize("sum_", ["y = Add(i, x)", "y = Add(x, i)"])
def test_the_product_takes_the_sum(sum_, rng):
    graph = checked(made(f"{PRODUCT} {sum_}"), rng, changes=1)
    assert sorted(op_types(graph)) == ["Add", "MatMul", "Reshape", "Reshape", "Transpose", "Transpose"]
    (product,) = (region for region in partition(graph).regions if isinstance(region.formula, Gemm))
    add = next(node for node in graph.graph if node.op_type == "Add")
    assert product.nodes == (next(n.name for n in graph.graph if n.op_type == "MatMul"), add.name)
    assert sources_of(add) == (add.name,)


def test_what_comes_later_in_the_file_can_be_added(rng):
    body = f"{PRODUCT} c = Relu(x) y0 = Add(c, i) y = Relu(y0)"
    graph = checked(made(body), rng, changes=1)
    assert [value.name for node in graph.graph for value in node.outputs if node.op_type == "Relu"] == [
        "c",
        "y",
    ]


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (f"{PRODUCT} y = Add(i, b)", {"b": np.ones((1, 5, 1, 1), np.float32)}),  # repeated
        (f"{PRODUCT} y = Add(i, i)", {}),
        (f"{PRODUCT} j = Add(i, x) y = Mul(j, i)", {}),  # the image is read elsewhere
        ("p = MatMul(t, w) s = Reshape(p, other) y0 = Transpose<perm=[0,3,1,2]>(s) y = Add(y0, x)",
         {"other": np.array([-1, 2, 3, 5])}),
        ("p = MatMul(t, w) s = Reshape(p, mixed) i = Transpose<perm=[0,3,1,2]>(s) y = Add(i, z)",
         {"mixed": np.array([0, 3, 5, 2])}),  # channels and columns change places
    ],
    ids=["a bias", "twice itself", "read elsewhere", "another batch", "channels mixed"],
)  # fmt: skip
def test_others_stay(body, more, rng):
    inputs = f"{INPUTS}, float[N,2,3,5] z" if "z)" in body else INPUTS
    checked(made(body, inputs=inputs, **more), rng, changes=0)


def test_sizes_that_are_not_known_stay(rng):
    inputs = "float[N,6,4] t, float[N,5,H,W] x"
    model = made(f"{PRODUCT} y = Add(i, x)", inputs=inputs)
    graph = ir.from_proto(ir.to_proto(model))
    assert add_to_tokens(graph) == 0
