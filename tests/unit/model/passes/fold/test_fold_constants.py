# SPDX-License-Identifier: Apache-2.0
"""Constants are computed once, within bounds."""

import numpy as np
import pytest

from quantrt.ir.sources import sources_of
from quantrt.model.passes.fold.fold_constants import fold_constants
from tests.unit.model.check_pass import check_pass, model_of, op_types

W = np.arange(24, dtype=np.float32).reshape(4, 6)


def test_a_chain_of_constants(rng):
    model = model_of(
        "[turn] t = Transpose<perm=[1,0]>(w) [half] h = Mul(t, s) [use] y = MatMul(x, h)",
        weights={"w": W, "s": np.float32(0.5)},
    )
    folded = check_pass(fold_constants, model, rng, changes=2, rtol=0, atol=0)
    assert op_types(folded) == ["MatMul"]
    assert sources_of(folded.graph[0]) == ("use", "half", "turn")
    np.testing.assert_array_equal(folded.graph.initializers["h"].const_value.numpy(), W.T / 2)


def test_several_outputs(rng):
    model = model_of(
        "a, b = Split<axis=0>(w) m = MatMul(x, a) n = MatMul(x, b) y = Add(m, n)",
        weights={"w": rng.standard_normal((12, 3)).astype(np.float32)},
    )
    folded = check_pass(fold_constants, model, rng, changes=1, rtol=0, atol=0)
    assert op_types(folded) == ["MatMul", "MatMul", "Add"]


SHAPES = {
    "a wholly known shape": ("s = Shape(x) y = Reshape(f, s)", "float[2,4,6,6] x", 1),
    "part of a shape": (
        "s = Shape<start=1, end=3>(x) k = Cast<to=1>(s) y = Add(k, h)",
        "float[N,4,6,6] x",
        2,
    ),
    "a size picked from a shape": (
        "s = Shape(x) g = Gather(s, one) k = Cast<to=1>(g) y = Add(k, h)",
        "float[N,4,6,6] x",
        2,
    ),
    "sizes sliced from a shape": (
        "s = Shape(x) g = Slice(s, v1, v3) k = Cast<to=1>(g) y = Add(k, h)",
        "float[N,4,6,6] x",
        2,
    ),
    "the number of elements": ("s = Size(x) k = Cast<to=1>(s) y = Add(k, h)", "float[2,4,6,6] x", 2),
    "an unknown size": (
        "s = Shape(x) g = Gather(s, zero) k = Cast<to=1>(g) y = Add(k, h)",
        "float[N,4,6,6] x",
        0,
    ),
    "an unknown shape": ("s = Shape(x) k = Cast<to=1>(s) y = Add(k, z)", "float[N,4,6,6] x", 0),
}


@pytest.mark.parametrize("case", SHAPES)
def test_sizes_that_inference_knows(case, rng):
    body, inputs, changes = SHAPES[case]
    model = model_of(
        body,
        inputs=inputs,
        weights={
            "f": np.zeros(288, np.float32),
            "h": np.zeros(2, np.float32),
            "z": np.zeros(4, np.float32),
            "zero": np.int64(0),
            "one": np.int64(1),
            "v1": np.array([1]),
            "v3": np.array([3]),
        },
    )
    check_pass(fold_constants, model, rng, changes=changes, rtol=0, atol=0)


GROWING = {
    "Expand": "b = Expand(small, big) y = Add(x, b)",
    "ConstantOfShape": "b = ConstantOfShape(big) y = Add(x, b)",
    "Tile": "b = Tile(row, repeats) y = Add(x, b)",
    "an outer product": "b = Mul(column, row) y = Add(x, b)",
}


@pytest.mark.parametrize("case", GROWING)
def test_what_would_grow_the_model_stays(case, rng):
    model = model_of(
        GROWING[case],
        inputs="float[600,600] x",
        weights={
            "small": np.ones((1, 1), np.float32),
            "big": np.array([600, 600]),
            "row": np.ones((1, 600), np.float32),
            "column": np.ones((600, 1), np.float32),
            "repeats": np.array([600, 1]),
        },
    )
    check_pass(fold_constants, model, rng, changes=0, rtol=0, atol=0)


def test_a_large_weight_may_be_transposed(rng):
    weight = rng.standard_normal((600, 700)).astype(np.float32)
    model = model_of("t = Transpose(w) y = MatMul(x, t)", inputs="float[1,700] x", weights={"w": weight})
    # A constant right operand is packed, and summed in another order: float32 rounding of 700 terms.
    folded = check_pass(fold_constants, model, rng, changes=1, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(folded.graph.initializers["t"].const_value.numpy(), weight.T)


KEPT = {
    "DequantizeLinear": "w = DequantizeLinear(q, s) y = MatMul(x, w)",
    "QuantizeLinear": "a = QuantizeLinear(w, s) b = DequantizeLinear(a, s) y = MatMul(x, b)",
    "after DequantizeLinear": "w = DequantizeLinear(q, s) t = Relu(w) y = MatMul(x, t)",
    "a graph output": "y = Transpose<perm=[1,0]>(w)",
}


@pytest.mark.parametrize("case", KEPT)
def test_it_stays(case, rng):
    weights = {"q": np.ones((6, 4), np.int8), "s": np.float32(0.5)}
    if "DequantizeLinear(q" not in KEPT[case]:
        weights["w"] = W.T
    check_pass(fold_constants, model_of(KEPT[case], weights=weights), rng, changes=0, rtol=0, atol=0)


def test_random_numbers_stay_random():
    model = model_of("r = RandomNormalLike(w) y = Add(x, r)", inputs="float[4,6] x", weights={"w": W})
    assert fold_constants(model) == 0


def test_control_flow_stays(rng):
    model = model_of(
        "y = If (c) <then_branch = yes () => (float[...] a) { a = Mul(w, x) },"
        " else_branch = no () => (float[...] b) { b = Add(w, x) }>",
        inputs="float[4,6] x",
        weights={"w": W, "c": np.array(True)},
    )
    check_pass(fold_constants, model, rng, changes=0, rtol=0, atol=0)


def test_a_constant_used_inside_a_branch_folds(rng):
    model = model_of(
        "v = Neg(w) y = If (c) <then_branch = yes () => (float[...] a) { a = Mul(v, x) },"
        " else_branch = no () => (float[...] b) { b = Add(v, x) }>",
        inputs="float[4,6] x",
        weights={"w": W, "c": np.array(True)},
    )
    folded = check_pass(fold_constants, model, rng, changes=1, rtol=0, atol=0)
    assert op_types(folded) == ["If"]
