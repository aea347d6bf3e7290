# SPDX-License-Identifier: Apache-2.0
"""Shapes that must be equal are known to be, and no others."""

import numpy as np
import pytest

from quantrt.ir.shapes import infer_shapes
from quantrt.regions.facts.contents import product, quotient
from quantrt.regions.facts.shape_rules import broadcast
from quantrt.regions.facts.sizes import Sizes
from tests.unit.model.check_pass import model_of


def sizes_of(body, *, inputs, outputs="float[...] y", weights=None):
    """The sizes of a model, and its values by name."""
    model = model_of(body, inputs=inputs, outputs=outputs, weights=weights)
    infer_shapes(model)
    values = {value.name: value for node in model.graph for value in node.outputs}
    values |= {value.name: value for value in model.graph.inputs}
    return Sizes(model), values


@pytest.mark.parametrize(
    ("dims", "others", "want"),
    [
        ((6, "N"), (3,), "2*N"),
        (("N", 6), ("N", 2), 3),
        (("N", 6), ("N", 4), None),
        (("N", "M", 4), ("M", 4), "N"),
        (("N", 4), ("M",), None),
        ((0, "N"), (5,), 0),
        ((4,), (0,), None),
    ],
)
def test_quotients(dims, others, want):
    assert quotient(dims, others) == want


def test_products_do_not_depend_on_the_order():
    assert product(["b", 2, "a"]) == product(["a", "b", 2]) == "2*a*b"
    assert product([]) == 1 and product(["a"]) == "a" and product(["a", 0]) == 0


@pytest.mark.parametrize(
    ("shapes", "want"),
    [
        ([(2, 1), (3,)], (2, 3)),
        ([("N", 1, 4), ("M", 4)], ("N", "M", 4)),
        ([("N",), (4,)], (4,)),
        ([("N",), ("M",)], None),
        ([("N",), None], None),
        ([(), ("N",)], ("N",)),
    ],
)
def test_broadcasting(shapes, want):
    assert broadcast(shapes) == want


def test_computed_shapes_are_followed():
    """x.view(b * s, h, -1).view(b, s, -1) has the sizes of x."""
    weights = {"zero": np.array([0]), "one": np.array([1]), "tail": np.array([2, -1]), "rest": np.array([-1])}
    sizes, values = sizes_of(
        "n = Shape(x) b = Gather(n, zero) s = Gather(n, one) m = Mul(b, s) t = Concat<axis=0>(m, tail)"
        " v = Reshape(x, t) u = Concat<axis=0>(b, s, rest) y = Reshape(v, u)",
        inputs="float[B,S,6] x",
        weights=weights,
    )
    assert sizes.shape(values["v"]) == ("B*S", 2, 3)
    assert sizes.same(values["x"], values["y"])


def test_equal_nodes_of_equal_shapes_have_equal_results():
    """Pooling takes sizes that nobody knows to sizes that nobody knows, but the same for a and b."""
    body = (
        "a = MaxPool<kernel_shape=[3,3], strides=[2,2]>(x) r = Relu(x)"
        " b = MaxPool<kernel_shape=[3,3], strides=[2,2]>(r) c = MaxPool<kernel_shape=[3,3], strides=[1,1]>(r)"
        " y = Add(a, b)"
    )
    sizes, values = sizes_of(body, inputs="float[N,3,H,W] x")
    assert sizes.same(values["a"], values["b"]) and sizes.same(values["a"], values["y"])
    assert not sizes.same(values["a"], values["c"])


def test_results_whose_sizes_depend_on_values_are_not_equal():
    sizes, values = sizes_of(
        "a = NonZero(x) b = NonZero(z) c = Resize(f, , s) y = Resize(f, , t)",
        inputs="float[N] x, float[N] z, float[1,1,H,W] f, float[4] s, float[4] t",
        outputs="int64[...] a, int64[...] b, float[...] c, float[...] y",
    )
    assert not sizes.same(values["a"], values["b"])
    assert not sizes.same(values["c"], values["y"])


def test_parts_of_unknown_sizes():
    weights = {
        "from": np.array([0]),
        "to": np.array([5]),
        "other": np.array([1]),
        "end": np.array([2**63 - 1]),
    }
    sizes, values = sizes_of(
        "a = Slice(x, from, to) r = Relu(x) b = Slice(r, from, to) c = Slice(x, other, to)"
        " y = Slice(x, from, end)",
        inputs="float[N,3] x",
        weights=weights,
    )
    assert sizes.same(values["a"], values["b"])
    assert not sizes.same(values["a"], values["c"])
    assert sizes.same(values["x"], values["y"])


def test_what_is_joined_agrees_on_the_other_axes():
    sizes, values = sizes_of("j = Concat<axis=1>(x, z) y = MatMul(x, z)", inputs="float[A,4] x, float[B,4] z")
    assert sizes.shape(values["x"])[0] == sizes.shape(values["z"])[0]


def test_an_unknown_rank_passes_through_elementwise_nodes():
    sizes, values = sizes_of(
        "a = If (c) <then_branch = yes () => (float[...] u) { u = Identity(x) },"
        " else_branch = no () => (float[...] v) { v = Identity(z) }> r = Relu(a) y = Neg(r)",
        inputs="bool c, float[2,3] x, float[4] z",
    )
    assert sizes.shape(values["a"]) is None
    assert sizes.same(values["a"], values["y"])
    assert not sizes.same(values["a"], values["x"])


def test_a_symbol_is_not_cast_to_a_float_and_divided():
    """7 / 2 is 3.5 there, which rounds up to another size than 3."""
    weights = {"zero": np.array([0]), "two": np.array([2])}
    sizes, values = sizes_of(
        "n = Shape(x) b = Gather(n, zero) f = Cast<to=1>(b) g = Cast<to=1>(two) d = Div(f, g) c = Ceil(d)"
        " i = Cast<to=7>(c) y = Expand(z, i)",
        inputs="float[7,N] x, float[1] z",
        weights=weights,
    )
    assert sizes.shape(values["y"]) not in [(3,), ("7/2",)]
