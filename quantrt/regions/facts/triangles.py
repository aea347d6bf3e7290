# SPDX-License-Identifier: Apache-2.0
"""Tensors of one number on and below their diagonal and another above it: causal masks, however spelled.

Followed from constants through the nodes that computed masks are made of: Range, ConstantOfShape, Trilu,
comparisons of positions, Where, arithmetic with numbers, and nodes that add axes of size 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.regions.facts.contents import Dim
from quantrt.regions.facts.facts import Facts

__all__ = ["Triangle", "last_sizes", "triangle_of"]

_MAX_DEPTH = 24
_PLACES = ((0, 0), (1, 0), (0, 1))
"""Row and column of an element on the diagonal, below it, and above it."""


@dataclass(frozen=True)
class Triangle:
    """A matrix, or a stack of equal ones.

    Attributes:
        below: its elements at columns up to the row's number; truth is 1.0 and 0.0.
        above: all others.
    """

    below: float
    above: float


@dataclass(frozen=True)
class _Index:
    """The number of the place along an axis: -1 for columns, -2 for rows."""

    axis: int


_Known = Triangle | _Index


def triangle_of(value: ir.Value, facts: Facts) -> Triangle | None:
    """What is known of a tensor's elements; None where it is more than two numbers and a diagonal."""
    found = _follow(value, facts, _MAX_DEPTH)
    return found if isinstance(found, Triangle) else None


def last_sizes(value: ir.Value, facts: Facts) -> tuple[Dim, Dim] | None:
    """Rows and columns of a matrix that is added to or chooses among others, as far as they are known.

    What is cut from a constant is as large as the cut asks for: a longer input would not fit the model.
    """
    maker = facts.maker_of(value)
    node = None if maker is None else facts.nodes[maker]
    shape = facts.sizes.shape(value)
    if node is not None and is_operator(node, "Cast", "Not", "Identity") and node.inputs[0] is not None:
        return last_sizes(node.inputs[0], facts)
    if node is None or not is_operator(node, "Slice") or node.inputs[0] is None or not shape:
        return None if shape is None or len(shape) < 2 else (shape[-2], shape[-1])
    sizes = last_sizes(node.inputs[0], facts)
    parts = [facts.sizes.elements(given) for given in node.inputs[1:4]]
    if sizes is None or len(parts) != 3 or any(part is None for part in parts):
        return None
    found = list(sizes)
    for start, end, axis in zip(*(part or () for part in parts), strict=True):
        place = axis - len(shape) if isinstance(axis, int) and axis >= 0 else axis
        if place in (-1, -2) and isinstance(place, int):
            if start != 0:
                return None
            size = found[place]
            is_part = isinstance(end, str) or (isinstance(size, int) and 0 <= int(end) < size)
            found[place] = end if is_part else size
    return found[0], found[1]


def _follow(value: ir.Value | None, facts: Facts, depth: int) -> _Known | None:
    if value is None or depth == 0:
        return None
    array = constant_of(value)
    if array is not None:
        return _of_constant(array)
    maker = facts.maker_of(value)
    if maker is None:
        return None
    node = facts.nodes[maker]
    if is_operator(node, *_MOVERS):
        return _moved(node, facts, depth)
    if is_operator(node, "ConstantOfShape"):
        fill = node.attributes.get("value")
        number = 0.0 if fill is None else float(fill.as_tensor().numpy().reshape(-1)[0])
        return Triangle(number, number)
    if is_operator(node, "Range"):
        start, _, step = (constant_of(given) for given in node.inputs)
        is_counting = start is not None and step is not None and float(start) == 0 and float(step) == 1
        return _Index(-1) if is_counting else None
    if is_operator(node, "Trilu"):
        return _cut(node, facts, depth)
    if is_operator(node, *_ELEMENTWISE):
        return _computed(node, facts, depth)
    return None


def _of_constant(array: np.ndarray) -> _Known | None:
    if array.size == 0 or array.dtype.kind not in "fiub":
        return None
    if (array == array.flat[0]).all():
        return Triangle(float(array.flat[0]), float(array.flat[0]))
    for axis in (-1, -2):
        is_line = array.ndim >= -axis and array.size == array.shape[axis]
        if is_line and array.dtype.kind in "iu" and (array.reshape(-1) == np.arange(array.size)).all():
            return _Index(axis)
    if array.ndim < 2 or array.size != array.shape[-1] * array.shape[-2]:
        return None
    rows, columns = array.shape[-2:]
    matrix = array.reshape(rows, columns)
    is_below = np.tri(rows, columns, dtype=bool)
    below, above = matrix[is_below], matrix[~is_below]
    if not above.size or (below != below[0]).any() or (above != above[0]).any():
        return None
    return Triangle(float(below[0]), float(above[0]))


_MOVERS = ("Cast", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze")


def _moved(node: ir.Node, facts: Facts, depth: int) -> _Known | None:
    """The same where the last two axes stay what they are."""
    known = _follow(node.inputs[0], facts, depth - 1)
    if known is None or isinstance(known, Triangle) and known.below == known.above:
        return known
    if is_operator(node, "Cast"):
        to = ir.DataType(int_attribute(node, "to", 0))
        is_safe = isinstance(known, _Index) or to != ir.DataType.BOOL
        return known if is_safe else _each(lambda x: x != 0, known)
    if is_operator(node, "Slice"):
        return known if _starts_at_zero(node, facts) else None
    before, after = (facts.sizes.shape(value) for value in (node.inputs[0], node.outputs[0]))
    if before is None or after is None:
        return None
    if isinstance(known, _Index):
        at = [axis for axis in range(-len(after), 0) if after[axis] != 1]
        is_line = len(at) == 1 and after[at[0]] == before[known.axis]
        return _Index(at[0]) if is_line and at[0] in (-1, -2) else None
    return known if len(after) >= 2 and after[-2:] == before[-2:] and _is_one(before, after) else None


def _is_one(before: tuple[int | str, ...], after: tuple[int | str, ...]) -> bool:
    """Whether one of the shapes has a single matrix, so that no other can have come to lie elsewhere."""
    return all(size == 1 for size in before[:-2]) or before == after


def _starts_at_zero(node: ir.Node, facts: Facts) -> bool:
    starts = facts.sizes.elements(node.inputs[1])
    steps = facts.sizes.elements(node.inputs[4]) if len(node.inputs) > 4 else (1,)
    return starts is not None and steps is not None and not any(starts) and all(step == 1 for step in steps)


def _cut(node: ir.Node, facts: Facts, depth: int) -> Triangle | None:
    """Zeros on one side of the diagonal."""
    known = _follow(node.inputs[0], facts, depth - 1)
    offset = node.inputs[1] if len(node.inputs) > 1 else None
    diagonal = facts.sizes.elements(offset) if offset is not None else (0,)
    is_upper = int_attribute(node, "upper", 1)
    if not isinstance(known, Triangle) or diagonal != (1 if is_upper else 0,):
        return None
    return Triangle(0.0, known.above) if is_upper else Triangle(known.below, 0.0)


_ELEMENTWISE: Mapping[str, Callable[..., object]] = {
    "Add": lambda a, b: a + b,
    "And": lambda a, b: a and b,
    "Equal": lambda a, b: a == b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Mul": lambda a, b: a * b,
    "Neg": lambda a: -a,
    "Not": lambda a: not a,
    "Or": lambda a, b: a or b,
    "Sub": lambda a, b: a - b,
    "Where": lambda c, a, b: a if c else b,
}


def _computed(node: ir.Node, facts: Facts, depth: int) -> Triangle | None:
    """An elementwise node at the places that matter: positions may only be compared."""
    known = [_follow(value, facts, depth - 1) for value in node.inputs]
    parts = [part for part in known if part is not None]
    if len(parts) != len(known):
        return None
    compute = _ELEMENTWISE[node.op_type]
    values = []
    for row, column in _PLACES:
        given = [_at(part, row, column) for part in parts]
        values.append(float(compute(*given)))  # type: ignore[arg-type]
    has_index = any(isinstance(part, _Index) for part in parts)
    if has_index and not is_operator(node, "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        return None
    if {part.axis for part in parts if isinstance(part, _Index)} not in (set(), {-1, -2}):
        return None
    is_triangle = values[0] == values[1] and values[2] == values[2]  # NaN is neither
    return Triangle(values[0], values[2]) if is_triangle else None


def _at(known: _Known, row: int, column: int) -> float:
    if isinstance(known, _Index):
        return float(column if known.axis == -1 else row)
    return known.below if column <= row else known.above


def _each(compute: Callable[[float], object], known: _Known) -> Triangle | None:
    if isinstance(known, _Index):
        return None
    return Triangle(float(bool(compute(known.below))), float(bool(compute(known.above))))
