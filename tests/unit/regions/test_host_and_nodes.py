# SPDX-License-Identifier: Apache-2.0
"""Shapes on the CPU, views, and nodes without a formula."""

import numpy as np
import pytest

from quantrt.regions.region import Attention, Gemm, Host, Nodes, Rows, View
from tests.unit.model.check_pass import random_feeds
from tests.unit.regions.check_partition import check_values, partitioned

TOLERANCE = 1e-6


def reads_values(found, op_type):
    """Whether the region of the one node of an operator reads values of the device."""
    names = {node.name for node in found.graph.graph if node.op_type == op_type}
    (region,) = (region for region in found.regions.regions if set(region.nodes) <= names)
    assert isinstance(region.formula, Nodes), region
    return region.formula.reads_values


def test_a_shape_that_is_computed_from_sizes(rng):
    """TorchScript's x.view(b, -1, 4): the Reshape is a view, what computes its shape runs on the host."""
    weights = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1, 4])}
    found = partitioned(
        "s = Shape(x) b = Gather(s, zero) u = Unsqueeze(b, axes) t = Concat<axis=0>(u, rest)"
        " y = Reshape(x, t)",
        inputs="float[B,8,6] x",
        weights=weights,
    )
    assert found.kinds() == [
        "Host: Shape",
        "Host: Gather",
        "Host: Unsqueeze",
        "Host: Concat",
        "View: Reshape",
    ]
    assert found.regions.host_values == {"s", "b", "u", "t"}
    assert found.regions.regions[-1].inputs == ("x", "t")
    check_values(found, random_feeds(found.graph, rng), tolerance=0)


def test_a_size_that_is_used_as_a_number_is_read_by_a_node(rng):
    """Scaling by the square root of a size: the last host value is an input of a node on the device."""
    weights = {"last": np.array(1)}
    found = partitioned(
        "s = Shape(x) n = Gather(s, last) f = Cast<to=1>(n) r = Sqrt(f) d = Div(x, r) y = Relu(d)",
        inputs="float[B,S] x",
        weights=weights,
    )
    assert found.kinds()[-2:] == ["Nodes: Div", "Rows: Relu"]
    assert "r" in found.regions.host_values
    assert not reads_values(found, "Div")
    check_values(found, random_feeds(found.graph, rng), tolerance=TOLERANCE)


def test_positions_are_made_on_the_device_from_a_size_on_the_host(rng):
    weights = {
        "one": np.array(1),
        "zero": np.array(0),
        "table": rng.standard_normal((16, 4)).astype(np.float32),
    }
    found = partitioned(
        "s = Shape(x) n = Gather(s, one) r = Range(zero, n, one) e = Gather<axis=0>(table, r) y = Add(x, e)",
        inputs="float[B,S,4] x",
        weights=weights,
    )
    assert found.regions.host_values == {"s", "n"}
    assert not reads_values(found, "Range")
    check_values(found, random_feeds(found.graph, rng), tolerance=TOLERANCE)


def test_a_large_tensor_that_only_decides_a_shape_stays_on_the_host(rng):
    """ConstantOfShape and Where, as torch spells expand(-1, ...)."""
    found = partitioned(
        "s = Shape(x) r = Shape(s) n = ConstantOfShape<value=int64[1] {1}>(r) e = Equal(minus, minus_one)"
        " t = Where(e, n, minus) y = Expand(x, t)",
        inputs="float[B,1,4] x",
        weights={"minus": np.array([-1, 5, 4]), "minus_one": np.array(-1)},
    )
    assert found.kinds()[-1] == "View: Expand"
    check_values(found, random_feeds(found.graph, rng), tolerance=0)


def test_a_shape_on_the_device_is_read(rng):
    found = partitioned("y = Reshape(x, t) z = Relu(y)", inputs="float[4,6] x, int64[2] t",
                        outputs="float[...] z")  # fmt: skip
    assert reads_values(found, "Reshape")
    check_values(
        found, {"x": rng.standard_normal((4, 6)).astype(np.float32), "t": np.array([3, 8])}, tolerance=0
    )


@pytest.mark.parametrize(
    ("body", "more", "feeds"),
    [
        ("y = NonZero(x)", "", {}),
        ("y, i = TopK(x, k)", "int64[1] k", {"k": np.array([2])}),
        ("y = Slice(x, a, k)", "int64[1] a, int64[1] k", {"a": np.array([0]), "k": np.array([2])}),
        ("y = Expand(x, k)", "int64[3] k", {"k": np.array([2, 4, 6])}),
        ("y = Tile(x, k)", "int64[2] k", {"k": np.array([2, 1])}),
        ("y = Pad(x, k)", "int64[4] k", {"k": np.array([1, 0, 0, 2])}),
    ],
)
def test_values_on_the_device_that_decide_a_shape(body, more, feeds, rng):
    kind = "int64" if "NonZero" in body else "float"
    found = partitioned(body, inputs="float[4,6] x" + (", " + more if more else ""), outputs=f"{kind}[...] y")
    assert [region.formula for region in found.regions.regions] == [Nodes(reads_values=True)]
    check_values(found, {"x": rng.standard_normal((4, 6)).astype(np.float32), **feeds}, tolerance=0)


VIEWS = {
    "Reshape": ("y = Reshape(x, a)", {"a": np.array([0, -1])}),
    "Flatten": ("y = Flatten<axis=2>(x)", {}),
    "Squeeze": ("y = Squeeze(x, a)", {"a": np.array([1])}),
    "Unsqueeze": ("y = Unsqueeze(x, a)", {"a": np.array([0, 3])}),
    "Transpose": ("y = Transpose<perm=[2,0,1]>(x)", {}),
    "Slice": (
        "y = Slice(x, a, b, c, d)",
        {"a": np.array([4]), "b": np.array([0]), "c": np.array([2]), "d": np.array([-2])},
    ),  # fmt: skip
    "Split": ("y, z = Split<axis=2>(x, a)", {"a": np.array([2, 3])}),
    "Expand": ("y = Expand(x, a)", {"a": np.array([3, 5])}),
}


@pytest.mark.parametrize("case", VIEWS)
def test_views(case, rng):
    body, weights = VIEWS[case]
    found = partitioned(
        body,
        inputs="float[N,1,5] x",
        outputs="float[...] y" + (", float[...] z" if case == "Split" else ""),
        weights=weights,
    )
    assert found.kinds() == [f"View: {case}"]
    check_values(found, random_feeds(found.graph, rng), tolerance=0)


def test_a_view_of_a_constant_is_a_node(rng):
    found = partitioned(
        "s = Shape(x) e = Expand(c, s) y = Concat<axis=0>(x, e)",
        inputs="float[N,5] x",
        weights={"c": rng.standard_normal(5).astype(np.float32)},
    )
    assert found.kinds() == ["Host: Shape", "Nodes: Expand", "Concat: Concat"]
    assert not reads_values(found, "Expand")
    check_values(found, random_feeds(found.graph, rng), tolerance=0)


def test_branches_and_what_they_capture(rng):
    """h is read in a branch alone, so the product must store it; both outputs of If are its own."""
    found = partitioned(
        "h = MatMul(x, w) r = Relu(h) s = ReduceSum<keepdims=0>(r) c = Greater(s, t)"
        " y = If (c) <then_branch = yes () => (float[...] a) { a = Neg(h) },"
        " else_branch = no () => (float[...] b) { b = Mul(w, x) }>",
        inputs="float[4,4] x",
        weights={"w": rng.standard_normal((4, 4)).astype(np.float32), "t": np.float32(0)},
    )
    product, branch = found.only(Gemm), found.regions.regions[-1]
    assert product.outputs == ("h", "r")
    assert branch.formula == Nodes(reads_values=True)
    assert set(branch.inputs) == {"c", "h", "x"}
    check_values(found, random_feeds(found.graph, rng), tolerance=TOLERANCE)


def test_quantized_nodes_are_nodes(rng):
    weights = {
        "s": np.float32(0.1),
        "z": np.int8(3),
        "w": rng.standard_normal((4, 4, 1, 1)).astype(np.float32),
    }
    found = partitioned(
        "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) c = Conv(d, w) y = Relu(c)",
        weights=weights,
    )
    assert found.kinds() == ["Nodes: QuantizeLinear", "Nodes: DequantizeLinear", "Conv: Conv Relu"]
    check_values(found, random_feeds(found.graph, rng), tolerance=TOLERANCE)


def test_a_graph_without_nodes_and_an_output_that_is_an_input():
    found = partitioned("", inputs="float[3] x", outputs="float[3] x")
    assert found.regions.regions == ()


def test_sizes_of_views_are_followed_to_the_residual(rng):
    """Windows and back: only the elements of the computed shapes say that both terms have one shape."""
    weights = {
        "w": rng.standard_normal((6, 6)).astype(np.float32),
        "zero": np.array(0),
        "axes": np.array([0]),
        "split": np.array([-1, 2, 3]),
        "join": np.array([-1, 6]),
    }
    found = partitioned(
        "s = Shape(x) b = Gather(s, zero) u = Unsqueeze(b, axes) t = Concat<axis=0>(u, split)"
        " v = Reshape(x, t) p = Transpose<perm=[0,1,3,2]>(v) j = Concat<axis=0>(u, join) f = Reshape(p, j)"
        " h = MatMul(f, w) y = Add(h, x)",
        inputs="float[B,5,6] x",
        weights=weights,
    )
    assert found.kinds()[-1] == "Gemm: MatMul Add"
    check_values(found, random_feeds(found.graph, rng), tolerance=TOLERANCE)


def test_host_values_are_no_operands(rng):
    found = partitioned("s = Shape(x) f = Cast<to=1>(s) y = Add(x, f)", inputs="float[N] x")
    kinds = {type(region.formula) for region in found.regions.regions}
    assert not kinds & {Rows, Attention} and kinds <= {Host, Nodes, View}
    check_values(found, random_feeds(found.graph, rng), tolerance=0)


def test_a_tensor_whose_shape_alone_is_read_stays_on_the_device(rng):
    """Shape(Range) wants no elements of the Range, which is as long as an activation."""
    weights = {"zero": np.array(0), "one": np.array(1), "two": np.array(2)}
    found = partitioned(
        "s = Shape(x) n = Gather(s, one) r = Range(zero, n, one) d = Mul(r, two) t = Shape(d)"
        " e = Expand(x, t) f = Cast<to=1>(d) y = Add(e, f)",
        inputs="float[1,S] x",
        weights=weights,
    )
    assert found.regions.host_values == {"s", "n", "t"}
    check_values(found, random_feeds(found.graph, rng), tolerance=TOLERANCE)


def test_what_shares_a_sequence_runs_as_one(rng):
    found = partitioned(
        "a = Relu(x) s = SequenceConstruct(a, x) z = Neg(x) t = SequenceInsert(s, z)"
        " c = ConcatFromSequence<axis=1>(t) y = Exp(c)",
        inputs="float[B,6] x",
    )
    kinds = [
        "Rows: Relu",
        "Rows: Neg",
        "Nodes: SequenceConstruct SequenceInsert ConcatFromSequence",
        "Rows: Exp",
    ]
    assert sorted(found.kinds()) == sorted(kinds)
    check_values(found, random_feeds(found.graph, rng), tolerance=TOLERANCE)


def test_what_a_sequence_leaves_for_and_comes_back_from_is_in_between(rng):
    found = partitioned(
        "s = SequenceConstruct(x, x) a = SequenceAt(s, zero) r = Exp(a) b = Neg(r) t = SequenceInsert(s, b)"
        " c = ConcatFromSequence<axis=0>(t) y = MatMul(c, w) z = Exp(r)",
        inputs="float[B,6] x",
        outputs="float[M,6] y, float[B,6] z",
        weights={"zero": np.array(0), "w": rng.standard_normal((6, 6)).astype(np.float32)},
    )
    (one,) = (region for region in found.regions.regions if isinstance(region.formula, Nodes))
    assert len(one.nodes) == 6 and one.inputs == ("x",) and one.outputs == ("r", "c")
    assert not one.formula.reads_values
    check_values(found, random_feeds(found.graph, rng), tolerance=TOLERANCE)
