# SPDX-License-Identifier: Apache-2.0
"""The order in which a kernel visits the elements of broadcast operands: as few dimensions as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from quantrt.errors import DataError

__all__ = ["View", "Walk", "is_channels_last", "iteration_shape", "make_walk"]

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


def is_channels_last(view: View) -> bool:
    """Whether axis 1 lies innermost in memory though it is not the last."""
    if len(view.shape) < 3 or view.shape[1] == 1:
        return False
    behind = [stride for size, stride in zip(view.shape[2:], view.strides[2:], strict=True) if size > 1]
    return bool(behind) and 0 < view.strides[1] < min(behind)


def make_walk(shape: tuple[int, ...], views: Sequence[View], *, channels_last: bool, has_rows: bool) -> Walk:
    """Visit `shape` in the order of dense outputs in that memory format.

    Args:
        views: of operands that broadcast to `shape`.
        channels_last: axis 1 lies innermost in the outputs; not together with `has_rows`.
        has_rows: rows are the last axis, which is not merged with others.
    """
    spread = [_spread(shape, view) for view in views]
    axes = list(range(len(shape)))
    if channels_last:
        axes.append(axes.pop(1))
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
