# SPDX-License-Identifier: Apache-2.0
"""Outputs that are sets of rows: a detector's boxes and scores, in the order in which it chose them.

TopK and NonMaxSuppression write what they choose in the order of scores. The least noise in two like scores
exchanges two rows of every output that follows from that choice, each of which is right: the squared distance
between the rows at one place tells of the order, not of the boxes. So such rows are held against those that
they are nearest to, each against one, by the least sum of squared distances over all outputs of the choice
(Carion et al. 2020, section 3.1, pairs boxes with the truth alike).

A trained RT-DETR in int8 whose average precision is FP32's has 11 dB in its boxes place by place, 22 dB as
sets; 95 % of its rows have 20 dB or more (docs/results/detection-transformers-cpu.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator

__all__ = ["ComparedSet", "RowSet", "RowTally", "compared_sets", "in_rows_of", "row_sets"]

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

MOST_ROWS = 2000
"""Rows of a sample that are paired, at most: detectors choose 100 to 1000. Their distances take 32 MB."""

FOUND_RATIO = 0.01
"""Noise over signal power of one row up to which it is the same row again: 20 dB."""


@dataclass(frozen=True)
class RowSet:
    """Outputs whose rows one node chose.

    Attributes:
        node: its name.
        outputs: names.
        rows: how many there are of each sample, at axis 1; None where values decide, and they are at axis 0.
    """

    node: str
    outputs: tuple[str, ...]
    rows: int | None


@dataclass
class RowTally:
    """What became of the rows of a set.

    Attributes:
        rows: of the reference.
        moved: those whose pair stood at another place.
        found: those whose pair has a noise of FOUND_RATIO at most in every output.
    """

    rows: int = 0
    moved: int = 0
    found: int = 0

    def add(self, order: Array, pairs: Sequence[tuple[Array, Array]]) -> None:
        """Count the rows of one sample, in each output as it is and as it was ordered."""
        n = len(pairs[0][0])
        found = order[:n] >= 0
        for ref, ordered in ((_rows(ref), _rows(_at(got, order)[:n])) for ref, got in pairs):
            found &= np.sum((ordered - ref) ** 2, 1) <= FOUND_RATIO * np.sum(ref * ref, 1)
        self.rows += n
        self.moved += int(np.count_nonzero(order[:n] != np.arange(n)))
        self.found += int(np.count_nonzero(found))


@dataclass(frozen=True)
class ComparedSet:
    """How the rows of a set are held against those of the reference.

    Attributes:
        node: that chose them.
        outputs: names.
        moved_ratio: part of the rows whose pair stood at another place.
        found_ratio: part of the rows that are there again: FOUND_RATIO of noise at most in every output.
    """

    node: str
    outputs: tuple[str, ...]
    moved_ratio: float
    found_ratio: float

    def __str__(self) -> str:
        which = ", ".join(f"'{name}'" for name in self.outputs)
        return (
            f"rows of {which} are what '{self.node}' chooses, in an order that noise changes: each is held "
            f"against the one that it is nearest to, {self.moved_ratio:.1%} at another place; "
            f"{self.found_ratio:.1%} are the same within {-10 * math.log10(FOUND_RATIO):.0f} dB"
        )


def compared_sets(sets: Sequence[RowSet], tallies: Mapping[str, RowTally]) -> tuple[ComparedSet, ...]:
    """Those of which there were rows."""
    return tuple(
        ComparedSet(one.node, one.outputs, tally.moved / tally.rows, tally.found / tally.rows)
        for one in sets
        if (tally := tallies[one.node]).rows
    )


def row_sets(graph: ir.Graph) -> tuple[RowSet, ...]:
    """The sets among the outputs of a graph; of each output the last choice of as many rows before it."""
    outputs = [value.name or "" for value in graph.outputs]
    chosen_by: dict[str, tuple[str, int | None]] = {}
    for node in graph:
        if is_operator(node, "TopK", "NonMaxSuppression"):
            is_topk = node.op_type == "TopK"
            rows = _count_of(node) if is_topk else None
            if is_topk and rows is None:
                continue
            reached = _reached_from(node.outputs)
            chosen_by |= {
                value.name or "": (node.name or "", rows)
                for value in graph.outputs
                if value.name in reached and _can_have(value, rows)
            }
    choices = dict.fromkeys(chosen_by.values())
    return tuple(
        RowSet(node, tuple(name for name in outputs if chosen_by.get(name) == (node, rows)), rows)
        for node, rows in choices
    )


def in_rows_of(
    ref: Arrays, got: Arrays, sets: Sequence[RowSet], tallies: Mapping[str, RowTally] | None = None
) -> dict[str, Array]:
    """The arrays of `got`, rows of sets at the place of the row of `ref` that they are nearest to.

    Rows beyond those of the reference come behind them. Where a value is not finite nothing is moved.

    Args:
        tallies: by node; added to.
    """
    paired = dict(got)
    for one in sets:
        names = [name for name in one.outputs if name in ref and name in got]
        names = [name for name in names if _are_rows(ref[name], one) and _are_rows(got[name], one)]
        floats = [name for name in names if ref[name].dtype.kind == got[name].dtype.kind == "f"]
        if not floats or not all(np.isfinite(side[name]).all() for side in (ref, got) for name in floats):
            continue
        samples: list[Any] = [...] if one.rows is None else list(range(len(ref[floats[0]])))
        orders = []
        for at in samples:
            pairs = [(ref[name][at], got[name][at]) for name in floats]
            orders.append(_order(pairs))
            if tallies is not None:
                tallies[one.node].add(orders[-1], pairs)
        for name in names:
            moved = [_at(got[name][at], order) for at, order in zip(samples, orders, strict=True)]
            paired[name] = moved[0] if one.rows is None else np.stack(moved)
    return paired


def _count_of(node: ir.Node) -> int | None:
    """How many a TopK chooses; None where that depends on values, where it is one, or more than MOST_ROWS."""
    array = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    count = int(array.reshape(-1)[0]) if array is not None and array.size == 1 else 0
    return count if 1 < count <= MOST_ROWS else None


def _reached_from(values: Sequence[ir.Value]) -> set[str]:
    """Names of these values, and of all that follow from them."""
    reached, held = {value.name or "" for value in values}, [*values]
    while held:
        for node, _ in held.pop().uses():
            for made in node.outputs:
                if made.name not in reached:
                    reached.add(made.name or "")
                    held.append(made)
    return reached


def _can_have(output: ir.Value, rows: int | None) -> bool:
    """Whether an output can have so many rows, by the shape that is known of it."""
    shape = output.shape
    if rows is None or shape is None:
        return True
    return len(shape) >= 2 and (not isinstance(shape[1], int) or shape[1] == rows)


def _are_rows(array: Array, one: RowSet) -> bool:
    """Whether an output has rows, in such a number that all pairs can be looked at, and no empty batch."""
    if one.rows is None:
        return array.ndim >= 1 and len(array) <= MOST_ROWS
    return array.ndim >= 2 and array.shape[1] == one.rows and len(array) > 0


def _order(pairs: Sequence[tuple[Array, Array]]) -> Array:
    """Which row of the second arrays belongs at each place; -1 where there is none.

    Args:
        pairs: the same rows in several outputs, [n, ...] and [m, ...].
    """
    from scipy.optimize import linear_sum_assignment  # not at the top: few models have such outputs

    cost = sum(_distances(ref, got) for ref, got in pairs)
    n, m = (len(array) for array in pairs[0])
    places, chosen = linear_sum_assignment(cost)
    order = np.full(max(n, m), -1)
    order[places] = chosen
    order[n:] = np.setdiff1d(np.arange(m), chosen)
    return order


def _distances(ref: Array, got: Array) -> Array:
    """Squared distances of rows over the power of all of the reference, float64 [n, m]."""
    a, b = _rows(ref), _rows(got)
    power = float(np.sum(a * a)) or 1.0
    distances: Array = np.sum(a * a, 1)[:, None] + np.sum(b * b, 1) - 2 * (a @ b.T)
    return distances / power


def _rows(array: Array) -> Array:
    rows: Array = array.reshape(len(array), -1).astype(np.float64)
    return rows


def _at(array: Array, order: Array) -> Array:
    """Rows in an order; zeros where it is -1."""
    moved = np.zeros((len(order), *array.shape[1:]), array.dtype)
    moved[order >= 0] = array[order[order >= 0]]
    return moved
