# SPDX-License-Identifier: Apache-2.0
"""Pairs of neighbouring channels that are turned by an angle are one elementwise chain over all of them.

    a, b = x[..., 0::2], x[..., 1::2]
    Concat(Unsqueeze(a * c - b * s), Unsqueeze(a * s + b * c), axis=-1)
        ->  Reshape(x * (c, c) + Gather(x, 1, 0, 3, 2, ...) * (-s, s))

with c and s cosines and sines of places: rotary embeddings of queries and keys, as torch exports them. Two
chains and two copies become one pass, and part of the norm before them. What is multiplied and added is the
same, number for number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, constant_of, int_attribute, is_operator, only_consumer, take_place
from quantrt.ir.sources import SOURCES_KEY, sources_of
from quantrt.model.passes.remove_unused import remove_unused

__all__ = ["turn_pairs"]

AXES_OPSET = 13
"""From which on Unsqueeze takes its axes as an input."""

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

_Pair = tuple[ir.Value, ir.Value]
_Dims = list[int | ir.SymbolicDim]


@dataclass(frozen=True)
class _Turn:
    """Pairs of x, [..., C], turned by angles of cosine c and sine s, [..., C / 2]."""

    x: ir.Value
    c: ir.Value
    s: ir.Value
    channels: int


def turn_pairs(graph: ir.Model) -> int:
    """Rewrite the main graph; how many."""
    if graph.opset_imports.get("", AXES_OPSET) < AXES_OPSET:
        return 0
    tables: dict[_Pair, _Pair] = {}
    count = 0
    for node in list(graph.graph):
        turn = _turn_of(node)
        if turn is not None:
            _Writer(graph, node).write(turn, tables)
            count += 1
    if count:
        remove_unused(graph)
    return count


def _turn_of(pair: ir.Node) -> _Turn | None:
    """What a Concat stores side by side, where that is a turned pair and nobody else reads its parts."""
    if not is_operator(pair, "Concat") or len(pair.inputs) != 2 or pair.outputs[0].dtype not in _FLOATS:
        return None
    first, second = (_before_unsqueeze(value, pair) for value in pair.inputs)
    if first is None or second is None or not (is_operator(first, "Sub") and is_operator(second, "Add")):
        return None
    difference, total = _products(first), _products(second)
    if len(difference) < 2 or len(total) < 2:
        return None
    for a, c in (difference[0], difference[0][::-1]):
        for b, s in (difference[1], difference[1][::-1]):
            x = _source(a, b)
            if x is not None and _are(total, (a, s), (b, c)) and _fit(x, c, s):
                return _Turn(x, c, s, _channels(x))
    return None


def _before_unsqueeze(value: ir.Value | None, pair: ir.Node) -> ir.Node | None:
    """What makes a part of a Concat along a new last axis, for it alone."""
    view = None if value is None else value.producer()
    if view is None or not is_operator(view, "Unsqueeze") or only_consumer(view.outputs[0]) is not pair:
        return None
    shape, axes, source = view.outputs[0].shape, constant_of(view.inputs[1]), view.inputs[0]
    if shape is None or axes is None or axes.size != 1 or source is None:
        return None
    last = (-1, len(shape) - 1)
    if int(axes.reshape(())) not in last or int_attribute(pair, "axis", 0) not in last:
        return None
    return source.producer() if only_consumer(source) is view else None


def _products(node: ir.Node) -> list[_Pair]:
    """The factors of the products that a Sub or an Add reads, where they are its own alone."""
    found = []
    for value in node.inputs:
        product = None if value is None else value.producer()
        if product is not None and is_operator(product, "Mul"):
            a, b = product.inputs
            if a is not None and b is not None and only_consumer(product.outputs[0]) is node:
                found.append((a, b))
    return found


def _are(products: Sequence[_Pair], *wanted: _Pair) -> bool:
    """Whether these are the factors, in whatever order."""
    return {frozenset(factors) for factors in products} == {frozenset(factors) for factors in wanted}


def _source(a: ir.Value, b: ir.Value) -> ir.Value | None:
    """What has a in its even and b in its odd channels."""
    x = _every_other(a, 0)
    return x if x is not None and x is _every_other(b, 1) else None


def _every_other(value: ir.Value, start: int) -> ir.Value | None:
    """What a Slice takes every other channel of, from `start` on."""
    node = value.producer()
    if node is None or not is_operator(node, "Slice") or len(node.inputs) != 5 or node.inputs[0] is None:
        return None
    numbers = [constant_of(given) for given in node.inputs[1:]]
    channels = _channels(node.inputs[0])
    if any(number is None or number.size != 1 for number in numbers) or channels % 2:
        return None
    begin, end, axis, step = (int(number.reshape(())) for number in numbers if number is not None)
    is_last = axis in (-1, len(_dims(node.inputs[0])) - 1)
    return node.inputs[0] if is_last and (begin, step) == (start, 2) and end >= channels > 0 else None


def _fit(x: ir.Value, c: ir.Value, s: ir.Value) -> bool:
    """Whether c and s have one shape, an angle for each pair of x, and x is not repeated for them."""
    of_x, of_c, of_s = _dims(x), _dims(c), _dims(s)
    is_known = all(isinstance(dim, int) or dim.value is not None for dim in (*of_x, *of_c, *of_s))
    if not is_known or of_c != of_s or not of_c or len(of_c) > len(of_x) or 2 * _channels(c) != _channels(x):
        return False
    pairs = zip(of_c[-2::-1], of_x[-2::-1], strict=False)
    return all(own in (1, other) for own, other in pairs)


def _channels(value: ir.Value) -> int:
    """The length of the last axis; 0 where it is not known."""
    last = (_dims(value) or [0])[-1]
    return last if isinstance(last, int) else 0


def _dims(value: ir.Value) -> _Dims:
    return [] if value.shape is None else list(value.shape.dims)


class _Writer:
    """Writes nodes in the place of a Concat."""

    def __init__(self, graph: ir.Model, pair: ir.Node) -> None:
        self._graph, self._pair = graph, pair
        self._name = pair.outputs[0].name or pair.name or ""
        self._added: list[ir.Node] = []

    def write(self, turn: _Turn, tables: dict[_Pair, _Pair]) -> None:
        """Write a turn, and the tables where there are none of its angles yet."""
        dims, count = _dims(turn.x), turn.channels
        if (turn.c, turn.s) not in tables:
            tables[turn.c, turn.s] = self._tables(turn)
        of_own, of_other = tables[turn.c, turn.s]
        places = self._constant("places", np.arange(count) ^ 1)
        sizes = self._constant("sizes", np.array([*[0] * (len(dims) - 1), count // 2, 2]))
        other = self._put("Gather", "other", dims, turn.x, places, axis=-1)
        products = (
            self._put("Mul", "own_turned", dims, turn.x, of_own),
            self._put("Mul", "other_turned", dims, other, of_other),
        )
        turned = self._put("Add", "turned", dims, *products)
        whole = self._put("Reshape", "pairs", [*dims[:-1], count // 2, 2], turned, sizes)
        take_place(self._graph, self._pair, self._added, whole)

    def _tables(self, turn: _Turn) -> _Pair:
        """(c, c) and (-s, s) for every pair, as constants where they are known."""
        c, s = constant_of(turn.c), constant_of(turn.s)
        if c is not None and s is not None:
            twice = c.repeat(2, axis=-1), np.stack([-s, s], -1).reshape(*s.shape[:-1], turn.channels)
            return self._constant("cos", twice[0]), self._constant("sin", twice[1])
        dims = _dims(turn.c)
        minus = self._put("Neg", "minus", dims, turn.s)
        return self._side_by_side("cos", dims, turn.c, turn.c), self._side_by_side("sin", dims, minus, turn.s)

    def _side_by_side(self, what: str, dims: _Dims, first: ir.Value, second: ir.Value) -> ir.Value:
        last = self._constant(f"{what}.last", np.array([-1]))
        parts = [
            self._put("Unsqueeze", f"{what}.{number}", [*dims, 1], value, last)
            for number, value in enumerate((first, second))
        ]
        both = self._put("Concat", f"{what}.both", [*dims, 2], *parts, axis=-1)
        sizes = self._constant(f"{what}.sizes", np.array([*[0] * (len(dims) - 1), 2 * dims[-1]]))
        return self._put("Reshape", what, [*dims[:-1], 2 * dims[-1]], both, sizes)

    def _constant(self, what: str, array: np.ndarray) -> ir.Value:
        return add_constant(self._graph, f"{self._name}.{what}", array)

    def _put(self, op_type: str, what: str, dims: _Dims, *inputs: ir.Value, **attributes: int) -> ir.Value:
        given = [ir.AttrInt64(key, number) for key, number in attributes.items()]
        node = ir.Node("", op_type, inputs, given, name=f"{self._pair.name}.{what}")
        node.metadata_props[SOURCES_KEY] = "\n".join(sources_of(self._pair))
        (made,) = node.outputs
        made.name, made.type = f"{self._name}.{what}", self._pair.outputs[0].type
        made.shape = ir.Shape(dims)
        self._added.append(node)
        return made
