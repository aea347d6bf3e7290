# SPDX-License-Identifier: Apache-2.0
"""Chains of elementwise nodes and reductions over rows."""

import numpy as np
import pytest

from quantrt.regions.region import Rows
from tests.unit.model.check_pass import random_feeds
from tests.unit.regions.check_partition import check_values, partitioned

FLOAT32 = 2e-6  # float32's rounding over some ten operations
AXES = (
    "axes = Constant<value_ints=[-1]>() two = Constant<value_float=2.0>() eps = Constant<value_float=1e-5>()"
)

NORMS = {
    "layer norm, torchscript": f"{AXES} m = ReduceMean<axes=[-1]>(s) d = Sub(s, m) p = Pow(d, two)"
    " v = ReduceMean<axes=[-1]>(p) e = Add(v, eps) r = Sqrt(e) q = Div(d, r) u = Mul(q, g) y = Add(u, b)",
    "layer norm, operator": "y = LayerNormalization<axis=-1, epsilon=1e-5>(s, g, b)",
    "rms norm": f"{AXES} p = Pow(s, two) v = ReduceMean<axes=[-1]>(p) e = Add(v, eps) r = Sqrt(e)"
    " i = Reciprocal(r) q = Mul(s, i) y = Mul(q, g)",
    "softmax": f"{AXES} m = ReduceMax<axes=[-1]>(s) d = Sub(s, m) e = Exp(d) t = ReduceSum(e, axes)"
    " q = Div(e, t) y = Mul(q, g)",
    "softmax, operator": "q = Softmax<axis=-1>(s) y = Mul(q, g)",
    "log softmax, operator": "q = LogSoftmax<axis=-1>(s) y = Mul(q, g)",
    "l2, operator": "q = LpNormalization<axis=-1, p=2>(s) y = Mul(q, g)",
    "l1": "n = ReduceL1<axes=[-1]>(s) q = Div(s, n) y = Mul(q, g)",
    "l2": "n = ReduceL2<axes=[-1]>(s) q = Div(s, n) y = Mul(q, g)",
    "power": "n = ReduceSumSquare<axes=[-1]>(s) q = Div(s, n) y = Mul(q, g)",
    "range": "n = ReduceMin<axes=[-1]>(s) q = Sub(s, n) y = Mul(q, g)",
}


@pytest.mark.parametrize("width", [1, 7, 41])
@pytest.mark.parametrize("case", NORMS)
def test_a_norm_behind_a_residual_sum_is_one_region_with_two_outputs(case, width, rng):
    weights = {
        "g": rng.standard_normal(width).astype(np.float32),
        "b": rng.standard_normal(width).astype(np.float32),
    }
    used = {name: weights[name] for name in weights if f"{name})" in NORMS[case] or f"{name}," in NORMS[case]}
    found = partitioned(
        f"s = Add(x, z) {NORMS[case]}",
        inputs=f"float[B,3,{width}] x, float[B,3,{width}] z",
        outputs="float[...] s, float[...] y",
        weights=used,
    )
    assert len(found.regions.regions) == 1
    assert found.only(Rows).outputs == ("s", "y")
    check_values(found, random_feeds(found.graph, rng), tolerance=1e-5 if width == 1 else FLOAT32)


def test_a_norm_behind_a_product_leaves_its_square_to_itself(rng):
    """The residual sum is the product's; Pow in its epilogue would store the row twice."""
    weights = {
        "w": rng.standard_normal((8, 8)).astype(np.float32),
        "g": rng.standard_normal(8).astype(np.float32),
    }
    found = partitioned(
        f"h = MatMul(x, w) s = Add(h, x) {NORMS['rms norm']}", inputs="float[B,3,8] x", weights=weights
    )
    assert found.kinds() == ["Gemm: MatMul Add", "Rows: Pow ReduceMean Add Sqrt Reciprocal Mul Mul"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_zeros_and_a_row_of_zeros(rng):
    found = partitioned("y = LpNormalization<axis=-1, p=2>(x) z = LpNormalization<axis=-1, p=1>(x)",
                        inputs="float[2,5] x", outputs="float[...] y, float[...] z")  # fmt: skip
    feeds = {"x": np.array([[0, 0, 0, 0, 0], [1, -2, 0, 4, 5]], np.float32)}
    check_values(found, feeds, tolerance=FLOAT32)


def test_reduced_outputs_are_marked(rng):
    found = partitioned(
        "n = ReduceMax<axes=[-1]>(x) y = Sub(x, n)",
        inputs="float[B,5] x",
        outputs="float[...] n, float[...] y",
    )
    assert found.only(Rows).formula.expression.row_outputs == (True, False)
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


OPERATORS = {
    "arithmetic": "a = Add(x, z) b = Sub(a, x) c = Mul(b, z) y = Div(c, a)",
    "unary": "a = Neg(x) b = Abs(a) c = Exp(b) d = Log(c) e = Sqrt(d) f = Reciprocal(c) g = Add(e, f)"
    " y = Tanh(g)",
    "rounding": "a = Floor(x) b = Ceil(x) c = Round(x) d = Sign(x) y = Sum(a, b, c, d)",
    "waves": "a = Sin(x) b = Cos(x) c = Erf(x) d = Sigmoid(x) y = Mean(a, b, c, d)",
    "choice": "a = Greater(x, z) b = Less(x, z) c = Or(a, b) d = Not(c) e = Xor(a, d) y = Where(e, x, z)",
    "order": "a = GreaterOrEqual(x, z) b = LessOrEqual(x, z) c = And(a, b) d = Cast<to=1>(c) e = Equal(x, z)"
    " f = Cast<to=1>(e) g = Max(x, z, d) h = Min(x, z, f) y = Add(g, h)",
    "a truth of floats": "a = Relu(x) b = Cast<to=9>(a) c = Cast<to=1>(b) y = Add(c, z)",
    "prelu": "a = PRelu(x, z) y = Softplus(a)",
    "powers": "t = Constant<value_int=2>() h = Constant<value_float=0.5>() a = Pow(x, t) y = Pow(a, h)",
    "nan": "a = Log(x) n = IsNaN(a) y = Where(n, z, a)",
    "halves": "a = Cast<to=10>(x) b = Cast<to=1>(a) y = Mul(b, z)",
}


@pytest.mark.parametrize("case", OPERATORS)
def test_elementwise_operators(case, rng):
    found = partitioned(OPERATORS[case], inputs="float[N,7] x, float[N,7] z", opset=20)
    assert [kind.split(":")[0] for kind in found.kinds()] == ["Rows"]
    feeds = random_feeds(found.graph, rng)
    feeds["z"][0, :4] = feeds["x"][0, :4]
    check_values(found, feeds, tolerance=1e-3 if case == "halves" else FLOAT32)


def test_gelu_and_mish_operators(rng):
    found = partitioned('a = Gelu(x) b = Gelu<approximate="tanh">(x) c = Mish(x) y = Sum(a, b, c)',
                        inputs="float[N,7] x", opset=20)  # fmt: skip
    assert len(found.regions.regions) == 1
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_small_operands_are_broadcast(rng):
    """A mask of [B,1,1,S] is computed where it is used, unless it is stored."""
    weights = {"one": np.float32(1), "low": np.float32(-100)}
    body = "a = Sub(one, m) b = Mul(a, low) y = Add(x, b)"
    inputs = "float[B,3,S,S] x, float[B,1,1,S] m"
    inside = partitioned(body, inputs=inputs, weights=weights)
    assert inside.kinds() == ["Rows: Sub Mul Add"]
    check_values(inside, random_feeds(inside.graph, rng), tolerance=FLOAT32)
    stored = partitioned(body, inputs=inputs, outputs="float[...] y, float[...] b", weights=weights)
    assert stored.kinds() == ["Rows: Sub Mul", "Rows: Add"]
    assert "smaller shape" in stored.reasons("rows")[0]
    check_values(stored, random_feeds(stored.graph, rng), tolerance=FLOAT32)


def test_rows_of_another_shape_are_reduced_apart(rng):
    """Were they one, every row of x would be summed again for each of its copies."""
    found = partitioned(
        "n = ReduceSum(x, axes) y = Add(n, z)",
        inputs="float[1,5] x, float[4,5] z",
        weights={"axes": np.array([-1])},
    )
    assert found.kinds() == ["Rows: ReduceSum", "Rows: Add"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize(
    ("body", "inputs", "reason"),
    [
        ("y = ReduceMean<axes=[1]>(x)", "float[2,3,4] x", "the last axis alone"),
        ("y = ReduceMean<axes=[-1,-2]>(x)", "float[2,3,4] x", "the last axis alone"),
        ("y = ReduceMean<axes=[-1], keepdims=0>(x)", "float[2,3,4] x", "drops the axis"),
        ("y = Softmax<axis=1>(x)", "float[2,3,4] x", "the last axis alone"),
        ("y = Softmax<axis=-1>(x)", "float[2,3,S] x", "length of its rows is not known"),
        ("y = Softmax<axis=-1>(x)", "float[2,16385] x", "more than 16384"),
        ("y, m = LayerNormalization(x, g)", "float[2,4] x, float[4] g", "second output"),
    ],
)
def test_reductions_that_no_row_can_hold_stay_nodes(body, inputs, reason, rng):
    outputs = "float[...] y, float[...] m" if " m =" in body else "float[...] y"
    found = partitioned(body, inputs=inputs, outputs=outputs)
    assert found.kinds()[0].startswith("Nodes")
    assert reason in found.reasons("rows")[0]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_a_group_that_another_node_stands_inside_stays_two(rng):
    found = partitioned(
        "a = Relu(x) p = LpPool<kernel_shape=[3,3], pads=[1,1,1,1]>(a) y = Add(a, p)", weights={}
    )
    assert found.kinds() == ["Rows: Relu", "Nodes: LpPool", "Rows: Add"]
    assert found.reasons("rows") == ["another node stands between them"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_unknown_sizes_meet(rng):
    """a and b may differ, one of them being 1: a norm of their sum has the sum's shape all the same."""
    found = partitioned(
        "s = Add(x, z) y = Softmax<axis=-1>(s)", inputs="float[a,5] x, float[b,5] z", outputs="float[c,5] y"
    )
    assert found.kinds() == ["Rows: Add Softmax"]
    feeds = {
        "x": rng.standard_normal((4, 5)).astype(np.float32),
        "z": rng.standard_normal((1, 5)).astype(np.float32),
    }
    check_values(found, feeds, tolerance=FLOAT32)


def test_a_number_with_more_axes_stays_a_node(rng):
    found = partitioned("y = Add(x, c)", inputs="float[5] x", weights={"c": np.full((1, 1), 2, np.float32)})
    assert found.kinds() == ["Nodes: Add"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_empty_tensors(rng):
    found = partitioned("a = Relu(x) y = Softmax<axis=-1>(a)", inputs="float[N,5] x")
    check_values(found, {"x": np.zeros((0, 5), np.float32)}, tolerance=0)


def test_numbers_that_are_not_finite_come_out_as_such(rng):
    found = partitioned("a = Relu(x) b = Sub(a, x) y = Exp(b)", inputs="float[6] x")
    feeds = {"x": np.array([np.nan, np.inf, -np.inf, 0, -200, 200], np.float32)}
    check_values(found, feeds, tolerance=FLOAT32)


def test_limits(rng):
    names = "abcdefghijk"
    sums = " ".join(f"s{n + 1} = Add(s{n}, {name})" for n, name in enumerate(names))
    inputs = ", ".join(f"float[3,4] {name}" for name in names)
    found = partitioned(
        f"{sums}".replace("s0", "x"), inputs=f"float[3,4] x, {inputs}", outputs="float[...] s11"
    )
    assert [len(region.inputs) for region in found.regions.regions] == [8, 5]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)
    chain = " ".join(f"s{n + 1} = {'Sin' if n % 2 else 'Cos'}(s{n})" for n in range(60)).replace(
        "(s0)", "(x)"
    )
    found = partitioned(chain, inputs="float[3,4] x", outputs="float[...] s60")
    assert [len(region.nodes) for region in found.regions.regions] == [48, 12]
