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


def masked(text: str, more: str = "", **weights: object):
    """Attention of S = 7 with `text` from the scores a to s."""
    inputs = ", ".join(part.replace("S", "7") for part in (Q, K, V, *[more] * bool(more)))
    arrays = {name: np.asarray(array) for name, array in weights.items()}
    return partitioned(f"{SWAP} a = MatMul(q, t) {text} {END}", inputs=inputs, weights=arrays)


TRIL = np.tri(S, dtype=bool)
LOWEST = np.finfo(np.float32).min


@pytest.mark.parametrize("low", [-np.inf, np.finfo(np.float32).min, -1e4], ids=str)
@pytest.mark.parametrize("kind", ["kept", "dropped"])
def test_a_mask_of_truths_that_chooses(kind, low, rng):
    text = "s = Where(m, a, low)" if kind == "kept" else "s = Where(m, low, a)"
    found = masked(text, "bool[B,1,S,S] m", low=np.float32(low))
    formula = found.only(Attention).formula
    assert (formula.mask_kind, formula.mask_value, formula.has_mask) == (kind, np.float32(low), True)
    mask = rng.random((B, 1, S, S)) < 0.5
    mask |= np.eye(S, dtype=bool)  # every query sees a key
    mask = mask if kind == "kept" else ~mask
    check_values(found, feeds_of(rng, m=mask), tolerance=TOLERANCE)


def test_a_query_whose_keys_all_have_the_same_low_score_sees_them_all(rng):
    found = masked("s = Where(m, a, low)", "bool[B,1,S,S] m", low=np.float32(-1e9))
    mask = rng.random((B, 1, S, S)) < 0.5
    mask[:, :, 2] = False
    check_values(found, feeds_of(rng, m=mask), tolerance=TOLERANCE)


@pytest.mark.parametrize("kind", ["kept", "dropped"])
def test_a_constant_mask_that_hides_all_from_a_query_is_no_addend(kind, rng):
    truths = rng.random((S, S)) < 0.6
    truths[3] = False
    text = "s = Where(m, a, low)" if kind == "kept" else "s = Where(m, low, a)"
    weights = {"m": truths if kind == "kept" else ~truths}
    found = masked(text, low=np.float32(-1e9), **weights)
    assert "one finite number" in found.reasons("attention")[0]
    check_values(found, feeds_of(rng), tolerance=TOLERANCE)
    truths[3, 0] = True
    found = masked(text, low=np.float32(-1e9), m=truths if kind == "kept" else ~truths)
    assert found.only(Attention).formula.mask_constant


@pytest.mark.parametrize("shape", [(S, S), (3, S, S), (1, 1, 1, S), (S,)], ids=str)
def test_a_constant_mask(shape, rng):
    found = masked("s = Add(a, table)", table=rng.standard_normal(shape).astype(np.float32))
    region = found.only(Attention)
    assert (region.formula.mask_constant, region.formula.has_mask) == ("table", False)
    assert len(region.inputs) == 3
    check_values(found, feeds_of(rng), tolerance=TOLERANCE)


def test_a_constant_mask_of_truths(rng):
    truths = rng.random((S, S)) < 0.6
    truths |= np.eye(S, dtype=bool)
    found = masked("s = Where(truths, a, low)", truths=truths, low=np.float32(-1e9))
    assert found.only(Attention).formula.mask_kind == "kept"
    check_values(found, feeds_of(rng), tolerance=TOLERANCE)


CAUSAL = {
    "added": ("s = Add(a, m)", {"m": np.where(TRIL, 0, -np.inf).astype(np.float32)}),
    "added, with four axes": (
        "s = Add(m, a)",
        {"m": np.where(TRIL, 0, LOWEST)[None, None].astype(np.float32)},
    ),
    "kept": ("s = Where(m, a, low)", {"m": TRIL, "low": LOWEST}),
    "dropped": ("s = Where(m, low, a)", {"m": ~TRIL, "low": LOWEST}),
    "added to one that is added": (
        "b = Add(a, m) s = Add(b, none)",
        {"m": np.where(TRIL, 0, -np.inf).astype(np.float32), "none": np.zeros((S, S), np.float32)},
    ),
}


@pytest.mark.parametrize("case", CAUSAL)
def test_a_constant_mask_that_is_causal_is_no_operand(case, rng):
    text, weights = CAUSAL[case]
    found = masked(text, **weights)
    formula = found.only(Attention).formula
    assert formula.is_causal and not formula.has_mask and not formula.mask_constant
    check_values(found, feeds_of(rng), tolerance=TOLERANCE)


NOT_CAUSAL = {
    "weak": np.where(TRIL, 0, -5.0),
    "finite": np.where(TRIL, 0, -1e4),
    "one row": np.where(np.arange(S) == 0, 0, -np.inf)[None],
    "upside down": np.where(TRIL.T, 0, -np.inf),
    "shifted": np.where(np.tri(S, k=1, dtype=bool), 0, -np.inf),
    "one element off": np.where(TRIL, 0, -np.inf) + np.where(np.arange(S * S) == S, 0.5, 0).reshape(S, S),
    "of each head": np.where(np.stack([TRIL, TRIL, TRIL.T]), 0, -np.inf),
}


@pytest.mark.parametrize("case", NOT_CAUSAL)
def test_a_constant_mask_that_is_nearly_causal_is_added(case, rng):
    found = masked("s = Add(a, table)", table=NOT_CAUSAL[case].astype(np.float32))
    formula = found.only(Attention).formula
    assert formula.mask_constant and not formula.is_causal
    check_values(found, feeds_of(rng), tolerance=TOLERANCE)


def test_causal_and_another_mask(rng):
    text = "b = Where(tril, a, low) s = Add(b, m)"
    found = masked(text, "float[B,1,1,S] m", tril=TRIL, low=LOWEST)
    formula = found.only(Attention).formula
    assert formula.is_causal and formula.has_mask and formula.mask_kind == "added"
    mask = rng.standard_normal((B, 1, 1, S)).astype(np.float32)
    check_values(found, feeds_of(rng, m=mask), tolerance=TOLERANCE)


FINITE = {
    "added": ("s = Add(a, m)", {"m": np.where(TRIL, 0, -1e4).astype(np.float32)}),
    "kept": ("s = Where(m, a, low)", {"m": TRIL, "low": np.float32(-1e4)}),
    "dropped": ("s = Where(m, low, a)", {"m": ~TRIL, "low": np.float32(-1e4)}),
}


@pytest.mark.parametrize("case", FINITE)
def test_scores_beyond_a_finite_mask_count_as_the_model_has_it(case, rng):
    """Products of about 2e4 to both sides: -1e4 more hides little."""
    text, weights = FINITE[case]
    found = masked(text, **weights)
    formula = found.only(Attention).formula
    assert not formula.is_causal and formula.mask_constant
    feeds = feeds_of(rng)
    feeds["q"] *= 6000
    check_values(found, feeds, tolerance=1e-3)


def test_a_finite_causal_mask_and_another_one_are_two(rng):
    text = "b = Where(tril, a, low) s = Add(b, m)"
    found = masked(text, "float[B,1,1,S] m", tril=TRIL, low=np.float32(-1e9))
    assert found.reasons("attention") == ["it has two masks that are not causal with -inf"]
    mask = rng.standard_normal((B, 1, 1, S)).astype(np.float32)
    check_values(found, feeds_of(rng, m=mask), tolerance=TOLERANCE)


def test_a_scale_of_zero_is_one():
    """By ONNX's definition every key counts alike then; ONNX Runtime refuses it."""
    found = partitioned("y = Attention<scale=0.0>(q, k, v)", inputs=f"{Q}, {K}, {V}", opset=23)
    assert found.only(Attention).formula.scale == 0.0


OWN = {
    "causal": ("<is_causal=1>(q, k, v)", "", {"is_causal": True, "has_mask": False}),
    "truths": ("(q, k, v, m)", "bool[B,1,S,S] m", {"mask_kind": "kept", "has_mask": True}),
    "causal and a bias": ("<is_causal=1>(q, k, v, m)", "float[S,S] m", {"is_causal": True, "has_mask": True}),
    "shared heads, causal": ("<is_causal=1>(w, k, v)", "float[B,6,S,16] w", {"is_causal": True}),
}


@pytest.mark.parametrize("case", OWN)
@pytest.mark.parametrize("opset", [23, 24])
def test_forms_of_onnx_attention(case, opset, rng):
    call, more, want = OWN[case]
    inputs = ", ".join([Q, K, V, *[more] * bool(more)])
    found = partitioned(f"y = Attention{call}", inputs=inputs, opset=opset)
    formula = found.only(Attention).formula
    assert {name: getattr(formula, name) for name in want} == want
    feeds = feeds_of(rng)
    if "bool" in more:
        feeds["m"] = (rng.random((B, 1, S, S)) < 0.6) | np.eye(S, dtype=bool)
    elif " m" in more:
        feeds["m"] = rng.standard_normal((S, S)).astype(np.float32)
    elif more:
        feeds["w"] = rng.standard_normal((B, 6, S, D)).astype(np.float32)
    check_values(found, feeds, tolerance=TOLERANCE)


def test_a_causal_query_counts_from_the_first_key(rng):
    found = partitioned(
        "y = Attention<is_causal=1>(q, k, v)",
        inputs="float[2,3,4,16] q, float[2,3,7,16] k, float[2,3,7,16] v",
        opset=23,
    )
    feeds = feeds_of(rng)
    feeds["q"] = feeds["q"][:, :, :4]
    check_values(found, feeds, tolerance=TOLERANCE)


REPEAT = "{0}1 = Unsqueeze({0}, two) {0}2 = Expand({0}1, wide) {0}3 = Reshape({0}2, back)"


def test_repeated_heads_are_read_once(rng):
    found = partitioned(
        REPEAT.format("k")
        + REPEAT.format("v")
        + " t = Transpose<perm=[0,1,3,2]>(k3) a = MatMul(q, t) s = Mul(a, c)"
        + END.replace("(p, v)", "(p, v3)"),
        inputs="float[2,6,7,16] q, float[2,3,7,16] k, float[2,3,7,16] v",
        weights={
            "two": np.array([2]),
            "wide": np.array([2, 3, 2, 7, 16]),
            "back": np.array([2, 6, 7, 16]),
            "c": np.float32(0.25),
        },
    )
    assert found.only(Attention).inputs == ("q", "k", "v")
    assert len(found.regions.regions) == 1
    feeds = feeds_of(rng, q=rng.standard_normal((B, 6, S, D)).astype(np.float32))
    check_values(found, feeds, tolerance=TOLERANCE)


def test_heads_repeated_in_another_order_stay_repeated(rng):
    """[h0, h1, h2, h0, h1, h2]: what Tile makes; grouped heads are neighbours."""
    repeat = "{0}1 = Unsqueeze({0}, one) {0}2 = Expand({0}1, wide) {0}3 = Reshape({0}2, back) "
    found = partitioned(
        repeat.format("k")
        + repeat.format("v")
        + f" t = Transpose<perm=[0,1,3,2]>(k3) s = MatMul(q, t) {END.replace('(p, v)', '(p, v3)')}",
        inputs="float[2,6,7,16] q, float[2,3,7,16] k, float[2,3,7,16] v",
        weights={
            "one": np.array([1]),
            "wide": np.array([2, 2, 3, 7, 16]),
            "back": np.array([2, 6, 7, 16]),
        },
    )
    assert set(found.only(Attention).inputs) == {"q", "t", "v3"}
    feeds = feeds_of(rng, q=rng.standard_normal((B, 6, S, D)).astype(np.float32))
    check_values(found, feeds, tolerance=TOLERANCE)


FAILURES = {
    "a number that is not low": (
        f"{SWAP} a = MatMul(q, t) s = Where(m, a, half) {END}",
        "bool[S,S] m",
        "something else than a low number",
    ),
    "two masks": (
        f"{SWAP} a = MatMul(q, t) b = Add(a, table) s = Add(b, m) {END}",
        "float[S,S] m",
        "two masks",
    ),
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
        "table": rng.standard_normal((S, S)).astype(np.float32),
        "half": np.float32(0.5),
    }
    inputs = ", ".join(text.replace("S", "7") for text in (Q, K, V, *[more] * bool(more)))
    found = partitioned(
        body,
        inputs=inputs,
        outputs="float[...] y, float[...] z" if " z =" in body else "float[...] y",
        weights={name: array for name, array in weights.items() if f", {name})" in body},
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
