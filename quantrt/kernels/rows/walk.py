# SPDX-License-Identifier: Apache-2.0
"""The order in which a kernel visits the elements of broadcast operands: as few dimensions as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from quantrt.errors import DataError

__all__ = ["View", "Walk", "iteration_shape", "make_walk", "memory_order", "output_order"]

MAX_COLUMNS = 2**30
"""So that a column's number, rounded up to a tile, fits an int32."""


@dataclass(frozen=True)
class View:
    """One operand in memory.

    Attributes:
        shape, strides: in elements.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Walk:
    """Rows over outer dimensions, and columns.

    Attributes:
        outer: sizes of the dimensions that number the rows, outermost first.
        columns: elements of a row.
        strides: for each operand, one per outer dimension, then the columns'; 0 where it broadcasts.
    """

    outer: tuple[int, ...]
    columns: int
    strides: tuple[tuple[int, ...], ...]

    @property
    def rows(self) -> int:
        """How many rows."""
        return math.prod(self.outer)


def iteration_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that all `shapes` broadcast to, as in ONNX and numpy.

    Raises:
        DataError: they do not.
    """
    result: list[int] = [1] * max((len(shape) for shape in shapes), default=0)
    for shape in shapes:
        for axis, size in enumerate(shape, len(result) - len(shape)):
            if size != 1 and result[axis] not in (1, size):
                raise DataError("cannot broadcast shapes", got=" and ".join(map(str, shapes)))
            result[axis] = size if size != 1 else result[axis]
    return tuple(result)


def memory_order(view: View) -> tuple[int, ...]:
    """The axes of an operand from the outermost in memory to the innermost; as they are if it broadcasts."""
    axes = range(len(view.shape))
    if any(size > 1 and view.strides[axis] <= 0 for axis, size in enumerate(view.shape)):
        return tuple(axes)
    return tuple(sorted(axes, key=lambda axis: -view.strides[axis]))


def output_order(shape: tuple[int, ...], full: View | None, *, channels_last: bool) -> tuple[int, ...]:
    """The order in memory of the outputs' axes: that of an input of full shape, unless it is prescribed."""
    if channels_last and len(shape) > 2:
        return (0, *range(2, len(shape)), 1)
    return tuple(range(len(shape))) if full is None else memory_order(full)


def make_walk(shape: tuple[int, ...], views: Sequence[View], *, order: Sequence[int], has_rows: bool) -> Walk:
    """Visit `shape` in the order of dense outputs.

    Args:
        views: of operands that broadcast to `shape`.
        order: axes of the outputs from the outermost in memory to the innermost.
        has_rows: rows are the last axis, which is the innermost, and not merged with others.
    """
    spread = [_spread(shape, view) for view in views]
    axes = list(order)
    last = axes.pop() if has_rows and axes else None
    merged = _merge([(shape[axis], tuple(strides[axis] for strides in spread)) for axis in axes])
    if has_rows:
        column = (1, (0,) * len(views)) if last is None else (shape[last], tuple(s[last] for s in spread))
        merged.append(column)
    if not merged:
        merged.append((1, (0,) * len(views)))
    sizes = [size for size, _ in merged]
    strides = tuple(tuple(step[i] for _, step in merged) for i in range(len(views)))
    return Walk(tuple(sizes[:-1]), sizes[-1], strides)


def _spread(shape: tuple[int, ...], view: View) -> tuple[int, ...]:
    """Strides of `view` along the axes of `shape`; 0 where it broadcasts and along axes of one element."""
    missing = len(shape) - len(view.shape)
    own = [0 if size == 1 else stride for size, stride in zip(view.shape, view.strides, strict=True)]
    return (*[0] * missing, *own)


def _merge(dims: list[tuple[int, tuple[int, ...]]]) -> list[tuple[int, tuple[int, ...]]]:
    """Dimensions (size, stride of every operand), outermost first, without those that say nothing."""
    merged: list[tuple[int, tuple[int, ...]]] = []
    for size, strides in reversed([dim for dim in dims if dim[0] != 1]):
        if merged:
            inner, steps = merged[-1]
            follows = all(far == near * inner for far, near in zip(strides, steps, strict=True))
            if follows and inner * size <= MAX_COLUMNS:
                merged[-1] = (inner * size, steps)
                continue
        merged.append((size, strides))
    return merged[::-1]
