# SPDX-License-Identifier: Apache-2.0
"""Causal masks that are computed, in the ways that models compute them."""

import numpy as np
import pytest

from quantrt.regions.facts.facts import gather_facts
from quantrt.regions.facts.host import find_host
from quantrt.regions.facts.triangles import Triangle, last_sizes, triangle_of
from tests.unit.regions.check_partition import partitioned

SIZE = "n = Shape<start=1, end=2>(x) one = Shape<start=0, end=0>(x)"
SQUARE = f"{SIZE} nn = Concat<axis=0>(n, n)"
POSITIONS = "d = Squeeze(n) i = Range(zero, d, step) row = Unsqueeze(i, last) column = Unsqueeze(i, first)"
WEIGHTS = {
    "zero": np.int64(0),
    "step": np.int64(1),
    "first": np.array([0]),
    "last": np.array([1]),
    "low": np.float32(-1e9),
    "none": np.float32(0),
    "diagonal": np.int64(1),
    "ones": np.ones((1, 1), np.float32),
    "tril": np.tri(16, dtype=bool)[None, None],
    "start": np.array([0, 0]),
    "later": np.array([1, 0]),
    "axes": np.array([2, 3]),
}

CASES = {
    "triu of lows": (f"{SQUARE} a = Expand(low, nn) m = Trilu<upper=1>(a, diagonal)", Triangle(0, -1e9)),
    "tril of ones": (f"{SQUARE} a = Expand(ones, nn) m = Trilu<upper=0>(a)", Triangle(1, 0)),
    "chosen by tril": (
        f"{SQUARE} a = Expand(ones, nn) b = Trilu<upper=0>(a) c = Equal(b, none) m = Where(c, low, none)",
        Triangle(0, -1e9),
    ),
    "one less, times": (
        f"{SQUARE} a = Expand(ones, nn) b = Trilu<upper=0>(a) c = Sub(ones, b) m = Mul(c, low)",
        Triangle(0, -1e9),
    ),
    "positions, at most": (f"{SIZE} {POSITIONS} m = LessOrEqual(column, row)", Triangle(1, 0)),
    "positions, above": (f"{SIZE} {POSITIONS} m = Greater(column, row)", Triangle(0, 1)),
    "positions, not above": (f"{SIZE} {POSITIONS} a = Greater(column, row) m = Not(a)", Triangle(1, 0)),
    "cast": (f"{SIZE} {POSITIONS} a = LessOrEqual(column, row) m = Cast<to=1>(a)", Triangle(1, 0)),
    "with axes before": (
        f"{SIZE} {POSITIONS} a = LessOrEqual(column, row) m = Unsqueeze(a, start_axes)",
        Triangle(1, 0),
    ),
    "cut from a table": (f"{SQUARE} m = Slice(tril, start, nn, axes)", Triangle(1, 0)),
    "cut from a table further on": (f"{SQUARE} m = Slice(tril, later, nn, axes)", None),
    "upside down": (f"{SIZE} {POSITIONS} m = LessOrEqual(row, column)", None),
    "below alone": (f"{SIZE} {POSITIONS} m = Less(column, row)", None),
    "diagonal alone": (f"{SIZE} {POSITIONS} m = Equal(column, row)", None),
    "triu with the diagonal": (f"{SQUARE} a = Expand(low, nn) m = Trilu<upper=1>(a)", None),
    "not a number": (
        f"{SQUARE} a = Expand(ones, nn) b = Trilu<upper=0>(a) m = Mul(b, infinite)",
        None,
    ),
    "positions from one on": (
        f"{SIZE} {POSITIONS} other = Add(column, step) m = LessOrEqual(other, row)",
        None,
    ),
}


def mask_of(body: str):
    """The value m of a graph that uses it."""
    weights = {**WEIGHTS, "start_axes": np.array([0, 1]), "infinite": np.float32(-np.inf)}
    used = {name: array for name, array in weights.items() if f"({name}," in body or f" {name}" in body}
    found = partitioned(
        f"{body} f = Cast<to=1>(m) y = Mul(f, x)", inputs="float[4,N] x", weights=used, opset=17
    )
    facts = find_host(gather_facts(found.graph))
    (value,) = (v for node in found.graph.graph for v in node.inputs if v is not None and v.name == "m")
    return value, facts


@pytest.mark.parametrize("case", CASES)
def test_computed_masks(case: str):
    body, want = CASES[case]
    value, facts = mask_of(body)
    assert triangle_of(value, facts) == want
    if want is not None:
        assert last_sizes(value, facts) == ("N", "N")
