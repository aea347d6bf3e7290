# SPDX-License-Identifier: Apache-2.0
"""Gated activations become one product that is split, biases behind the Split."""

import numpy as np
import pytest

from quantrt.ir.sources import sources_of
from quantrt.model.passes.for_gpu.merge_gates import merge_gates
from tests.unit.model.check_pass import check_pass, named_model_of, op_types

FLOAT32 = 1e-6  # sums of eight products may be added in another order
GELU = "e1 = Div({0}, root) e2 = Erf(e1) e3 = Add(e2, one) e4 = Mul({0}, e3) {1} = Mul(e4, half)"
NUMBERS = {"root": np.float32(1.4142135), "one": np.float32(1), "half": np.float32(0.5)}
HALVES = {"sizes": np.array([6, 6])}
BOUNDS = {"first": 0, "middle": 6, "back": -6, "end": 2**63 - 1, "last": -1}


def made(body, rng, *, inputs="float[2,5,8] x", more=None, **shapes):
    """The model with names and inferred shapes, as it is when it was loaded."""
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    arrays |= {name: array for name, array in (NUMBERS | HALVES).items() if f", {name})" in body}
    arrays |= {
        name: np.array([x]) for name, x in BOUNDS.items() if f", {name}," in body or f", {name})" in body
    }
    return named_model_of(body, inputs=inputs, weights=arrays | (more or {}))


def checked(model, rng, changes):
    return check_pass(merge_gates, model, rng, changes=changes, rtol=0, atol=FLOAT32)


GEGLU = {
    "matmul": "a = MatMul(x, w) p = Add(a, b) h, g = Split<axis=-1>(p, sizes)",
    "bias first": "a = MatMul(x, w) p = Add(b, a) h, g = Split<axis=-1>(p, sizes)",
    "slices": "a = MatMul(x, w) p = Add(a, b) h = Slice(p, first, middle, last)"
    " g = Slice(p, middle, end, last)",
    "slices from the end": "a = MatMul(x, w) p = Add(a, b) g = Slice(p, back, end, last)"
    " h = Slice(p, first, back, last)",
    "axis from the front": "a = MatMul(x, w) p = Add(a, b) h, g = Split<axis=2>(p, sizes)",
}


@pytest.mark.parametrize("case", GEGLU)
def test_geglu(case, rng):
    model = made(f"{GEGLU[case]} {GELU.format('g', 'r')} y = Mul(h, r)", rng, w=(8, 12), b=(12,))
    merged = checked(model, rng, changes=1)
    assert op_types(merged)[:2] == ["MatMul", "Split"]
    assert op_types(merged).count("Add") == 3, "two biases and one of GELU"
    (product, *_) = merged.graph
    assert sources_of(product) == ("MatMul_0", "Add_1")
    assert not {"w", "b"} & set(merged.graph.initializers)


def test_geglu_of_a_gemm(rng):
    body = f"p = Gemm<transB=1>(x, w, b) h, g = Split<axis=1>(p, sizes) {GELU.format('g', 'r')} y = Mul(h, r)"
    merged = checked(made(body, rng, inputs="float[5,8] x", w=(12, 8), b=(12,)), rng, changes=1)
    assert op_types(merged)[:2] == ["MatMul", "Split"]


@pytest.mark.parametrize("has_bias", [False, True])
def test_swiglu(rng, has_bias):
    """The activation may stand on either, and biases stay where they are."""
    body = "g = MatMul(x, wg) u = MatMul(x, wu) s = Sigmoid(g) a = Mul(g, s) y = Mul(a, u)"
    shapes = {"wg": (8, 6), "wu": (8, 6)}
    if has_bias:
        body = (
            "g0 = MatMul(x, wg) g = Add(g0, bg) u0 = MatMul(x, wu) u = Add(b1, u0)"
            " s = Sigmoid(g) a = Mul(g, s) y = Mul(a, u)"
        )
        shapes |= {"bg": (6,), "b1": (6,)}
    merged = checked(made(body, rng, **shapes), rng, changes=1)
    assert op_types(merged)[:2] == ["MatMul", "Split"]
    assert op_types(merged).count("MatMul") == 1
    product, split = list(merged.graph)[:2]
    assert [value.name for value in split.outputs] == (["g0", "u0"] if has_bias else ["g", "u"])
    assert len(sources_of(product)) == 2


def test_swiglu_of_gemms(rng):
    body = (
        "g = Gemm<transB=1>(x, wg, bg) u = Gemm<transB=1>(x, wu) s = Sigmoid(g) a = Mul(g, s) y = Mul(a, u)"
    )
    model = made(body, rng, inputs="float[5,8] x", wg=(6, 8), wu=(6, 8), bg=(6,))
    merged = checked(model, rng, changes=1)
    assert op_types(merged) == ["MatMul", "Split", "Add", "Sigmoid", "Mul", "Mul"]


LEFT_ALONE = {
    "no activation": "g = MatMul(x, wg) u = MatMul(x, wu) y = Mul(g, u)",
    "other inputs": "z = Neg(x) g = MatMul(x, wg) u = MatMul(z, wu) s = Sigmoid(g) y = Mul(s, u)",
    "other widths": "g = MatMul(x, wg) u = MatMul(x, wn) s = Sigmoid(g) y = Mul(s, u)",
    "they do not meet": "g = MatMul(x, wg) u = MatMul(x, wu) s = Sigmoid(g) t = Tanh(u)"
    " y = Concat<axis=0>(s, t)",
    "uneven parts": "a = MatMul(x, w) p = Add(a, b) h, g = Split<axis=-1>(p, uneven) s = Sigmoid(g)"
    " m = Mul(h, one) y = Concat<axis=-1>(m, s)",
    "slices that do not meet": "p = MatMul(x, w) h = Slice(p, first, middle, last)"
    " g = Slice(p, middle, end, last) s = Sigmoid(g) y = Concat<axis=0>(h, s)",
    "slices that overlap": "p = MatMul(x, w) h = Slice(p, first, middle, last)"
    " g = Slice(p, first, middle, last) s = Sigmoid(g) y = Mul(h, s)",
    "another axis": "a = MatMul(x, w) p = Add(a, b) h, g = Split<axis=0>(p) s = Sigmoid(g) y = Mul(h, s)",
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_is_no_gate_stays(case, rng):
    body = LEFT_ALONE[case]
    shapes = {"wg": (8, 6), "wu": (8, 6), "wn": (8, 1), "w": (8, 12), "b": (12,)}
    used = {name: shape for name, shape in shapes.items() if f", {name})" in body}
    more = {"uneven": np.array([4, 8])} if "uneven" in body else {}
    checked(made(body, rng, more=more, **used), rng, changes=0)


def test_two_layers(rng):
    body = (
        "g = MatMul(x, wg) u = MatMul(x, wu) s = Sigmoid(g) a = Mul(g, s) m = Mul(a, u) z = MatMul(m, wd)"
        " g1 = MatMul(z, wg) u1 = MatMul(z, wu) s1 = Sigmoid(g1) a1 = Mul(g1, s1) y = Mul(a1, u1)"
    )
    merged = checked(made(body, rng, wg=(8, 6), wu=(8, 6), wd=(6, 8)), rng, changes=2)
    assert op_types(merged).count("MatMul") == 3
