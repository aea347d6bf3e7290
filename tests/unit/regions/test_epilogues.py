# SPDX-License-Identifier: Apache-2.0
"""Products with constant weights and the elementwise nodes behind them."""

import numpy as np
import pytest

from quantrt.regions.region import Conv, Gemm, Nodes, Rows
from tests.unit.model.check_pass import random_feeds
from tests.unit.regions.check_partition import check_values, partitioned

FLOAT32 = 2e-6  # float32's rounding over some ten operations

ACTIVATIONS = {
    "relu": "y = Relu(h)",
    "clip": "lo = Constant<value_float=0.0>() hi = Constant<value_float=6.0>() y = Clip(h, lo, hi)",
    "silu": "s = Sigmoid(h) y = Mul(h, s)",
    "gelu of erf": "r = Constant<value_float=1.4142135>() one = Constant<value_float=1.0>()"
    " half = Constant<value_float=0.5>() d = Div(h, r) e = Erf(d) a = Add(e, one) m = Mul(h, a)"
    " y = Mul(m, half)",
    "gelu of tanh": "three = Constant<value_float=3.0>() c = Constant<value_float=0.044715>()"
    " k = Constant<value_float=0.7978846>() one = Constant<value_float=1.0>()"
    " half = Constant<value_float=0.5>()"
    " p = Pow(h, three) m = Mul(p, c) a = Add(h, m) q = Mul(a, k) t = Tanh(q) u = Add(t, one) v = Mul(h, u)"
    " y = Mul(v, half)",
    "hard swish": "three = Constant<value_float=3.0>() z = Constant<value_float=0.0>()"
    " six = Constant<value_float=6.0>() a = Add(h, three) c = Clip(a, z, six) m = Mul(h, c) y = Div(m, six)",
    "mish": "s = Softplus(h) t = Tanh(s) y = Mul(h, t)",
    "leaky relu": "y = LeakyRelu<alpha=0.1>(h)",
    "elu": "y = Elu<alpha=0.5>(h)",
    "selu": "y = Selu(h)",
    "celu": "y = Celu<alpha=0.7>(h)",
    "thresholded relu": "y = ThresholdedRelu<alpha=0.3>(h)",
    "hard sigmoid": "y = HardSigmoid<alpha=0.25,beta=0.4>(h)",
    "hard swish operator": "y = HardSwish(h)",
    "softsign": "y = Softsign(h)",
}


@pytest.mark.parametrize("case", ACTIVATIONS)
def test_activations_are_absorbed(case, rng):
    weights = {
        "w": rng.standard_normal((8, 5)).astype(np.float32),
        "b": rng.standard_normal(5).astype(np.float32),
    }
    found = partitioned(
        f"g = MatMul(x, w) h = Add(g, b) {ACTIVATIONS[case]}", inputs="float[N,7,8] x", weights=weights
    )
    assert [kind.split(":")[0] for kind in found.kinds()] == ["Gemm"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize("case", ACTIVATIONS)
def test_activations_behind_a_convolution(case, rng):
    weights = {
        "w": rng.standard_normal((6, 4, 3, 3)).astype(np.float32),
        "b": rng.standard_normal(6).astype(np.float32),
    }
    found = partitioned(f"h = Conv<pads=[1,1,1,1]>(x, w, b) {ACTIVATIONS[case]}", weights=weights)
    assert [kind.split(":")[0] for kind in found.kinds()] == ["Conv"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize(
    ("attributes", "weight", "bias"),
    [
        ("alpha=0.5, beta=2.0", (8, 5), (5,)),
        ("transB=1", (5, 8), (1, 5)),
        ("alpha=2.0, beta=0.0", (8, 5), (5,)),
        ("beta=0.25", (8, 5), (1,)),
        ("transB=1", (5, 8), (1, 1)),
    ],
)
def test_gemm(attributes, weight, bias, rng):
    weights = {
        "w": rng.standard_normal(weight).astype(np.float32),
        "b": rng.standard_normal(bias).astype(np.float32),
    }
    found = partitioned(f"y = Gemm<{attributes}>(x, w, b)", inputs="float[7,8] x", weights=weights)
    assert found.kinds() == ["Gemm: Gemm"]
    assert found.only(Gemm).formula.is_transposed == ("transB" in attributes)
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_gemm_adds_an_activation(rng):
    weights = {"w": rng.standard_normal((8, 5)).astype(np.float32)}
    found = partitioned("y = Gemm<beta=0.5>(x, w, c)", inputs="float[7,8] x, float[7,5] c", weights=weights)
    assert found.only(Gemm).inputs == ("x", "c")
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize(
    ("body", "inputs", "reason"),
    [
        ("y = Gemm<transA=1>(x, w)", "float[8,7] x", "transposed"),
        ("y = Gemm(x, w, c)", "float[7,8] x", "one number per column"),
        ("y = Gemm(x, w, d)", "float[7,8] x, float[5] d", "another shape"),
        ("y = MatMul(x, z)", "float[7,8] x, float[8,5] z", "not a constant matrix"),
    ],
)
def test_what_no_gemm_formula_says_stays_a_node(body, inputs, reason, rng):
    weights = {"w": rng.standard_normal((8, 5)).astype(np.float32), "c": np.ones((7, 1), np.float32)}
    used = {name: array for name, array in weights.items() if f"{name})" in body or f"{name}," in body}
    found = partitioned(body, inputs=inputs, weights=used)
    assert isinstance(found.regions.regions[0].formula, Nodes)
    assert reason in found.reasons("product")[0]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_auto_pad(mode, rng):
    weights = {"w": rng.standard_normal((3, 4, 3, 2)).astype(np.float32)}
    found = partitioned(
        f'y = Conv<auto_pad="{mode}", strides=[2,1]>(x, w)',
        inputs="float[2,4,7,6] x",
        weights=weights,
    )
    assert found.kinds() == ["Conv: Conv"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_auto_pad_of_unknown_sizes_stays_a_node(rng):
    weights = {"w": rng.standard_normal((3, 4, 3, 3)).astype(np.float32)}
    found = partitioned('y = Conv<auto_pad="SAME_UPPER">(x, w)', inputs="float[2,4,H,W] x", weights=weights)
    assert found.kinds() == ["Nodes: Conv"]
    assert found.reasons("product") == ["its padding depends on a size that is not known"]


def test_a_sum_of_two_products_belongs_to_the_later(rng):
    weights = {name: rng.standard_normal((4, 4, 1, 1)).astype(np.float32) for name in ("v", "w")}
    found = partitioned("a = Conv(x, v) b = Conv(x, w) s = Add(a, b) y = Relu(s)", weights=weights)
    assert found.kinds() == ["Conv: Conv", "Conv: Conv Add Relu"]
    assert found.regions.regions[1].inputs == ("x", "a")
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_the_input_of_a_product_added_to_its_result(rng):
    weights = {"w": rng.standard_normal((4, 1, 3, 3)).astype(np.float32)}
    found = partitioned("c = Conv<group=4, pads=[1,1,1,1]>(x, w) y = Add(x, c)", weights=weights)
    assert found.kinds() == ["Conv: Conv Add"]
    assert found.only(Conv).inputs == ("x",)
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_what_depends_on_the_result_is_not_added_to_it(rng):
    weights = {"w": rng.standard_normal((4, 4, 1, 1)).astype(np.float32)}
    found = partitioned(
        "c = Conv(x, w) p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(c) y = Add(c, p)", weights=weights
    )
    assert found.kinds() == ["Conv: Conv", "Pool: MaxPool Add"]
    assert found.reasons("epilogue") == ["another of its inputs depends on the product's result"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_an_operand_that_comes_later_moves_the_region_behind_it(rng):
    weights = {"w": rng.standard_normal((4, 4, 1, 1)).astype(np.float32)}
    found = partitioned(
        "c = Conv(x, w) p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(x) y = Add(c, p)", weights=weights
    )
    assert found.kinds() == ["Pool: MaxPool", "Conv: Conv Add"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_a_residual_stream_is_a_second_output(rng):
    """A pre-activation block: the sum goes on, and its Relu to the next convolution."""
    weights = {name: rng.standard_normal((4, 4, 1, 1)).astype(np.float32) for name in ("u", "v", "w")}
    found = partitioned(
        "a = Conv(x, u) s = Add(a, x) r = Relu(s) b = Conv(r, v) t = Add(b, s) q = Relu(t) y = Conv(q, w)",
        weights=weights,
    )
    assert found.kinds() == ["Conv: Conv Add Relu", "Conv: Conv Add Relu", "Conv: Conv"]
    assert found.regions.regions[0].outputs == ("s", "r")
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_half_of_a_chain_is_left_to_what_computes_the_rest(rng):
    """Were Exp absorbed, both its result and the product's would be stored, to be read by one kernel."""
    weights = {"w": rng.standard_normal((8, 5)).astype(np.float32), "c": np.ones((7, 1), np.float32)}
    found = partitioned(
        "h = MatMul(x, w) e = Exp(h) f = Add(e, c) y = Mul(f, h)", inputs="float[7,8] x", weights=weights
    )
    assert found.kinds() == ["Gemm: MatMul", "Rows: Exp Add Mul"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize(
    ("constant", "is_absorbed"),
    [
        ((6, 1, 1), True),
        ((1, 6, 1, 1), True),
        ((1,), True),
        ((6,), False),
        ((2, 1, 1, 1), False),
        ((1, 1, 1, 1, 1), False),
    ],
)
def test_constants_of_a_convolution_run_along_its_channels(constant, is_absorbed, rng):
    weights = {
        "w": rng.standard_normal((6, 4, 1, 1)).astype(np.float32),
        "c": rng.standard_normal(constant).astype(np.float32),
    }
    found = partitioned("h = Conv(x, w) r = Relu(h) y = Mul(r, c)", weights=weights)
    assert (found.kinds() == ["Conv: Conv Relu Mul"]) == is_absorbed
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_operands_are_limited(rng):
    weights = {"w": rng.standard_normal((8, 8)).astype(np.float32)}
    names = "abcdef"
    sums = " ".join(f"s{n + 1} = Add(s{n}, {name})" for n, name in enumerate(names))
    inputs = ", ".join(f"float[7,8] {name}" for name in names)
    found = partitioned(
        f"s0 = MatMul(x, w) {sums}",
        inputs=f"float[7,8] x, {inputs}",
        outputs="float[...] s6",
        weights=weights,
    )
    assert found.kinds() == ["Gemm: MatMul Add Add Add Add", "Rows: Add Add"]
    assert "more than 4 tensors" in found.reasons("epilogue")[0]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_instructions_are_limited(rng):
    weights = {"w": rng.standard_normal((8, 8)).astype(np.float32)}
    chain = " ".join(f"s{n + 1} = {'Sin' if n % 2 else 'Cos'}(s{n})" for n in range(40))
    found = partitioned(
        f"s0 = MatMul(x, w) {chain}", inputs="float[7,8] x", outputs="float[...] s40", weights=weights
    )
    assert [len(region.nodes) for region in found.regions.regions] == [25, 16]
    assert "more than 24 instructions" in found.reasons("epilogue")[0]
    check_values(found, random_feeds(found.graph, rng), tolerance=1e-4)


def test_float16(rng):
    weights = {
        "w": rng.standard_normal((8, 5)).astype(np.float16),
        "b": rng.standard_normal(5).astype(np.float16),
    }
    found = partitioned(
        "g = MatMul(x, w) h = Add(g, b) c = Cast<to=1>(h) y = Sigmoid(c)",
        inputs="float16[7,8] x",
        weights=weights,
    )
    assert found.kinds() == ["Rows: Cast", "Gemm: MatMul Add Sigmoid"]
    check_values(found, {"x": rng.standard_normal((7, 8)).astype(np.float16)}, tolerance=2e-3)


def test_integers_and_doubles_stay_nodes(rng):
    weights = {"w": rng.integers(-9, 9, (8, 5)).astype(np.int32), "d": np.array(1 / 3)}
    found = partitioned(
        "g = MatMul(x, w) c = Cast<to=11>(g) m = Mul(c, d) y = Floor(m) k = Cast<to=7>(y) z = Add(i, i)",
        inputs="int32[7,8] x, int64[3] i",
        outputs="int64[...] k, int64[...] z",
        weights=weights,
    )
    assert all(kind.startswith("Nodes: ") for kind in found.kinds())
    feeds = {"x": rng.integers(-9, 9, (7, 8)).astype(np.int32), "i": np.arange(3)}
    check_values(found, feeds, tolerance=1e-15)


def test_unknown_sizes_that_differ_are_not_added_in_the_epilogue(rng):
    weights = {"w": rng.standard_normal((8, 8)).astype(np.float32)}
    found = partitioned(
        "h = MatMul(x, w) y = Add(h, r)", inputs="float[N,8] x, float[M,8] r", weights=weights
    )
    assert found.kinds() == ["Gemm: MatMul", "Rows: Add"]
    feeds = {
        "x": rng.standard_normal((5, 8)).astype(np.float32),
        "r": rng.standard_normal((1, 8)).astype(np.float32),
    }
    check_values(found, feeds, tolerance=FLOAT32)
    assert isinstance(found.regions.regions[1].formula, Rows)


def test_gated_activations(rng):
    """Of two products, the later multiplies; the halves of one wide product meet in its epilogue."""
    weights = {name: rng.standard_normal((8, 8)).astype(np.float32) for name in "uw"}
    two = partitioned(
        "g = MatMul(x, w) s = Sigmoid(g) a = Mul(g, s) u1 = MatMul(x, u) y = Mul(a, u1)",
        inputs="float[7,8] x",
        weights=weights,
    )
    assert two.kinds() == ["Gemm: MatMul Sigmoid Mul", "Gemm: MatMul Mul"]
    check_values(two, random_feeds(two.graph, rng), tolerance=FLOAT32)
    wide = partitioned(
        "h = MatMul(x, w) g, u1 = Split<axis=-1>(h, sizes) a = Sigmoid(g) y = Mul(a, u1)",
        inputs="float[7,8] x",
        weights={"w": weights["w"], "sizes": np.array([4, 4])},
    )
    assert wide.kinds() == ["Gemm: MatMul Split Sigmoid Mul"]
    assert wide.only(Gemm).formula.is_gated
    assert wide.reasons("gated activation") == []
    check_values(wide, random_feeds(wide.graph, rng), tolerance=FLOAT32)


def test_a_gate_with_biases_a_residual_and_gelu(rng):
    found = partitioned(
        "p = MatMul(x, w) h0, g0 = Split<axis=-1>(p, sizes) h = Add(h0, b) g = Add(c, g0) e = Gelu(g)"
        " m = Mul(h, e) y = Add(m, r)",
        inputs="float[2,7,8] x, float[2,7,5] r",
        weights={
            "w": rng.standard_normal((8, 10)).astype(np.float32),
            "sizes": np.array([5, 5]),
            "b": rng.standard_normal(5).astype(np.float32),
            "c": rng.standard_normal(5).astype(np.float32),
        },
        opset=20,
    )
    assert found.kinds() == ["Gemm: MatMul Split Add Add Gelu Mul Add"]
    kinds = [operand.kind for operand in found.only(Gemm).formula.epilogue.operands]
    assert kinds[:2] == ["accumulator", "accumulator"] and kinds[2:].count("constant") == 2
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


NO_GATES = {
    "a half that is read elsewhere": (
        "h = MatMul(x, w) g, u = Split<axis=-1>(h, sizes) a = Sigmoid(g) m = Mul(a, u) z = Transpose(u)"
        " t = Transpose(m) y = Add(t, z)",
        "needed elsewhere",
    ),
    "halves that do not meet": (
        "h = MatMul(x, w) g, u = Split<axis=-1>(h, sizes) a = Sigmoid(g) b = Transpose(u) c = Transpose(b)"
        " y = Mul(a, c)",
        "depends on the product's result",
    ),
}


@pytest.mark.parametrize("case", NO_GATES)
def test_what_is_no_gate_says_why(case, rng):
    body, reason = NO_GATES[case]
    found = partitioned(
        body,
        inputs="float[7,8] x",
        weights={"w": rng.standard_normal((8, 8)).astype(np.float32), "sizes": np.array([4, 4])},
    )
    assert not any(isinstance(r.formula, Gemm) and r.formula.is_gated for r in found.regions.regions)
    assert reason in found.reasons("gated activation")[0]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize(
    ("body", "is_absorbed"),
    [
        ("m = ReduceMax<axes=[-1]>(a) g = MatMul(x, w) y = Mul(g, m)", True),
        ("m = ReduceMax<axes=[-1]>(a) g = MatMul(x, w) h = Mul(g, m) y = Add(h, b)", True),
        ("m = ReduceMax<axes=[1]>(a) g = MatMul(x, w) y = Mul(g, m)", False),
    ],
)
def test_one_number_for_each_row_is_an_operand(body, is_absorbed, rng):
    weights = {
        "w": rng.standard_normal((8, 5)).astype(np.float32),
        "b": rng.standard_normal(5).astype(np.float32),
    }
    found = partitioned(body, inputs="float[N,7,8] x, float[N,7,5] a", weights=weights)
    assert found.kinds()[-1].startswith("Gemm: MatMul Mul") == is_absorbed
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)
