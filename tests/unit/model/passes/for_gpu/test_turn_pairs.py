# SPDX-License-Identifier: Apache-2.0
"""Turned pairs of channels become one chain, number for number the same."""

import re

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.model.passes.for_gpu.turn_pairs import turn_pairs
from quantrt.regions.partition import partition
from quantrt.regions.region import Rows
from tests.unit.model.check_pass import check_pass, named_model_of, op_types

INPUTS = "float[N,3,5,8] x"
ANGLES = np.linspace(-3, 3, 20, dtype=np.float32).reshape(5, 4)
WEIGHTS = {
    **{f"i{number}": np.array([number]) for number in (0, 1, 2, 3, 9)},
    "last": np.array([-1]),
    "fifth": np.array([4]),
    "cos": np.cos(ANGLES),
    "sin": np.sin(ANGLES),
    "sizes": np.array([0, 0, 0, 8]),
}
PAIRS = "a = Slice(x, i0, i9, i3, i2) b = Slice(x, i1, i9, i3, i2)"
PRODUCTS = "p = Mul(a, cos) q = Mul(b, sin) r = Mul(a, sin) t = Mul(b, cos)"
ENDS = "d = Sub(p, q) e = Add(r, t) u = Unsqueeze(d, last) v = Unsqueeze(e, last)"
STACK = "w = Concat<axis=-1>(u, v) y = Reshape(w, sizes)"
TURN = f"{PAIRS} {PRODUCTS} {ENDS} {STACK}"


def made(body: str, *, inputs: str = INPUTS, outputs: str = "float[...] y", **weights) -> ir.Model:
    return named_model_of(body, inputs=inputs, outputs=outputs, weights=WEIGHTS | weights)


def checked(body: str, rng: np.random.Generator, changes: int, **options) -> ir.Model:
    return check_pass(turn_pairs, made(body, **options), rng, changes=changes, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("Mul(a, cos)", "Mul(cos, a)"),
        ("Mul(b, sin)", "Mul(sin, b)"),
        ("Add(r, t)", "Add(t, r)"),
        ("Unsqueeze(e, last)", "Unsqueeze(e, fifth)"),
        ("axis=-1", "axis=4"),
    ],
)
def test_a_turn_is_one_chain(old, new, rng):
    graph = checked(TURN.replace(old, new), rng, changes=1)
    assert sorted(op_types(graph)) == ["Add", "Gather", "Mul", "Mul", "Reshape", "Reshape"]
    (chain,) = (region for region in partition(graph).regions if isinstance(region.formula, Rows))
    assert [step.op for step in chain.formula.expression.instructions] == ["swap_pairs", "mul", "mul", "add"]
    assert len(chain.nodes) == 4


def test_a_norm_before_it_is_in_the_chain(rng):
    body = TURN.replace("Slice(x,", "Slice(n,")
    graph = checked(f"n = LayerNormalization<axis=-1>(x, weight) {body}", rng, 1, weight=np.float32(range(8)))
    (chain,) = (region for region in partition(graph).regions if isinstance(region.formula, Rows))
    assert chain.inputs == ("x",)


def test_turns_share_tables_that_are_computed(rng):
    other = TURN
    for name in (*"abpqrtdeuvwy",):
        other = re.sub(rf"\b{name}\b", f"{name}2", other)
    body = f"c = Cos(z) s = Sin(z) {TURN} {other}".replace("cos", "c").replace("sin", "s")
    outputs = "float[...] y, float[...] y2"
    graph = checked(body, rng, changes=2, inputs=f"{INPUTS}, float[5,4] z", outputs=outputs)
    assert (op_types(graph).count("Concat"), op_types(graph).count("Neg")) == (2, 1)


@pytest.mark.parametrize(
    "body",
    [
        TURN.replace("Sub(p, q)", "Add(p, q)"),
        TURN.replace("Sub(p, q)", "Sub(q, p)").replace("Add(r, t)", "Sub(r, t)"),
        TURN.replace("r = Mul(a, sin)", "r = Mul(a, cos)"),
        TURN.replace("axis=-1", "axis=3").replace("last)", "i3)"),
        f"{TURN} z = Relu(d)",
        f"{TURN} z = Relu(p)",
        TURN.replace("Concat<axis=-1>(u, v)", "Concat<axis=-1>(u, v, v)").replace("sizes", "wider"),
    ],
)
def test_what_is_no_turn_stays(body, rng):
    outputs = "float[...] y, float[...] z" if " z = " in body else "float[...] y"
    checked(body, rng, changes=0, outputs=outputs, wider=np.array([0, 0, 0, 12]))
