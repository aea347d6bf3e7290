# SPDX-License-Identifier: Apache-2.0
"""Softmax attention in the spellings of exporters."""

import math

import numpy as np
import pytest

from quantrt.regions.region import Attention
from tests.unit.regions.check_partition import check_values, partitioned

TOLERANCE = 2e-6
B, H, S, D = 2, 3, 7, 16
Q, K, V = "float[B,3,S,16] q", "float[B,3,S,16] k", "float[B,3,S,16] v"
SCALE = {"c": np.float32(0.25), "r": np.float32(0.5), "inverse": np.float32(4)}
SWAP = "t = Transpose<perm=[0,1,3,2]>(k)"
END = "p = Softmax<axis=-1>(s) y = MatMul(p, v)"

SPELLINGS = {
    "scores times": f"{SWAP} a = MatMul(q, t) s = Mul(a, c) {END}",
    "scores divided": f"{SWAP} a = MatMul(q, t) s = Div(a, inverse) {END}",
    "q times": f"{SWAP} b = Mul(q, c) s = MatMul(b, t) {END}",
    "q and k times, k before its Transpose": f"b = Mul(q, r) d = Mul(r, k) t = Transpose<perm=[0,1,3,2]>(d)"
    f" s = MatMul(b, t) {END}",
    "q and k times, k behind its Transpose": f"{SWAP} b = Mul(q, r) d = Mul(t, r) s = MatMul(b, d) {END}",
}


def feeds_of(rng, **more):
    tensors = {name: rng.standard_normal((B, H, S, D)).astype(np.float32) for name in "qkv"}
    return {**tensors, **more}


@pytest.mark.parametrize("mask", ["", "float[B,1,1,S] m", "float[S,S] m", "float[B,3,S,S] m"])
@pytest.mark.parametrize("case", SPELLINGS)
def test_spellings(case, mask, rng):
    body, inputs = SPELLINGS[case], f"{Q}, {K}, {V}"
    feeds = feeds_of(rng)
    if mask:
        body = body.replace(" s = ", " u = ").replace(END, f"s = Add(u, m) {END}")
        inputs += ", " + mask
        sizes = {"B": B, "S": S, "1": 1, "3": 3}
        shape = [sizes[letter] for letter in mask[6 : mask.index("]")].split(",")]
        feeds["m"] = rng.standard_normal(shape).astype(np.float32)
    weights = {name: array for name, array in SCALE.items() if f"{name})" in body or f"({name}," in body}
    found = partitioned(body, inputs=inputs, weights=weights)
    region = found.only(Attention)
    assert region.formula.scale == 0.25
    assert region.formula.has_mask == bool(mask)
    is_folded = "before" in case
    assert region.formula.is_transposed != is_folded
    assert [kind.split(":")[0] for kind in found.kinds()] == ["View"] * (not is_folded) + ["Attention"]
    check_values(found, feeds, tolerance=TOLERANCE)


def test_the_guard_of_rows_that_are_masked_entirely(rng):
    weights = {"c": np.float32(0.25), "zero": np.float32(0)}
    found = partitioned(
        f"{SWAP} a = MatMul(q, t) s = Mul(a, c) p = Softmax<axis=-1>(s) n = IsNaN(p) w = Where(n, zero, p)"
        " y = MatMul(w, v)",
        inputs=f"{Q}, {K}, {V}",
        weights=weights,
    )
    assert len(found.only(Attention).nodes) == 6
    check_values(found, feeds_of(rng), tolerance=TOLERANCE)


def test_a_scale_that_others_read_too_stays_outside(rng):
    found = partitioned(
        f"{SWAP} b = Mul(q, c) s = MatMul(b, t) {END}",
        inputs=f"{Q}, {K}, {V}",
        outputs="float[...] y, float[...] b",
        weights={"c": np.float32(0.25)},
    )
    region = found.only(Attention)
    assert region.formula.scale == 1.0 and region.inputs == ("b", "t", "v")
    check_values(found, feeds_of(rng), tolerance=TOLERANCE)


def test_onnx_attention(rng):
    found = partitioned("y = Attention(q, k, v, m)", inputs=f"{Q}, {K}, {V}, float[S,S] m", opset=23)
    region = found.only(Attention)
    assert region.formula.scale == 1 / math.sqrt(D) and not region.formula.is_transposed
    mask = rng.standard_normal((S, S)).astype(np.float32)
    check_values(found, feeds_of(rng, m=mask), tolerance=TOLERANCE)


def test_onnx_attention_with_shared_heads(rng):
    found = partitioned(
        "y = Attention<scale=0.3>(q, k, v)",
        inputs="float[B,6,S,16] q, float[B,3,S,16] k, float[B,3,S,16] v",
        opset=23,
    )
    assert found.only(Attention).formula.scale == pytest.approx(0.3)
    feeds = feeds_of(rng, q=rng.standard_normal((B, 6, S, D)).astype(np.float32))
    check_values(found, feeds, tolerance=TOLERANCE)


FAILURES = {
    "a chosen mask": (
        f"{SWAP} a = MatMul(q, t) s = Where(m, a, low) {END}",
        "bool[S,S] m",
        "a Where chooses",
    ),
    "a constant mask": (f"{SWAP} a = MatMul(q, t) s = Add(a, table) {END}", "", "the mask is a constant"),
    "scores that are read": (f"{SWAP} s = MatMul(q, t) {END} z = Relu(s)", "", "other readers"),
    "another axis": (
        f"{SWAP} s = MatMul(q, t) p = Softmax<axis=2>(s) y = MatMul(p, v)",
        "",
        "not over the last axis",
    ),
    "something else between": (f"{SWAP} a = MatMul(q, t) s = Tanh(a) {END}", "", "a Tanh stands between"),
    "a scaled mask": (
        f"{SWAP} a = MatMul(q, t) b = Add(a, m) s = Mul(b, half) {END}",
        "float[S,S] m",
        "a Add",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_is_not_the_formula_says_why(case, rng):
    body, more, reason = FAILURES[case]
    weights = {
        "low": np.float32(-1e4),
        "table": rng.standard_normal((S, S)).astype(np.float32),
        "half": np.float32(0.5),
    }
    inputs = ", ".join(text.replace("S", "7") for text in (Q, K, V, *[more] * bool(more)))
    found = partitioned(
        body,
        inputs=inputs,
        outputs="float[...] y, float[...] z" if " z =" in body else "float[...] y",
        weights={name: array for name, array in weights.items() if f"{name})" in body},
    )
    assert reason in found.reasons("attention")[0]
    feeds = feeds_of(rng)
    if more:
        feeds["m"] = rng.standard_normal((S, S)).astype(np.float32)
        feeds["m"] = feeds["m"] > 0 if more.startswith("bool") else feeds["m"]
    check_values(found, feeds, tolerance=1e-5)


def test_three_axes_are_no_match(rng):
    found = partitioned(
        "t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) p = Softmax<axis=-1>(s) y = MatMul(p, v)",
        inputs="float[2,7,16] q, float[2,7,16] k, float[2,7,16] v",
    )
    assert found.reasons("attention") == ["q, k or v does not have four axes"]
    feeds = {name: rng.standard_normal((2, 7, 16)).astype(np.float32) for name in "qkv"}
    check_values(found, feeds, tolerance=TOLERANCE)


def test_a_classifiers_softmax_is_not_tried(rng):
    found = partitioned("y = Softmax<axis=-1>(x)", inputs="float[2,5] x")
    assert found.reasons("attention") == []
