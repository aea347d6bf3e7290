# SPDX-License-Identifier: Apache-2.0
"""A matrix of floats that is 4-bit codes less zero points, times a scale for each group of neighbours.

    weight = dtype(float32(codes - zero_point) * scale)     # groups of 32, 64 or 128 along one axis

Weights alone in 4 bits come as floats that are just that: files have them in several spellings, and products
may have been merged, split or transposed since. Codes and scales still show in the values, as those of 8 bits
do (`quantrt.plan.coded_weight`), and are what is looked for: kernels multiply the codes, and engine files
hold them, two in a byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantrt.plan.coded_weight import FLOATS, middles

__all__ = ["GROUP_SIZES", "MIDDLE", "GroupedWeight", "as_groups", "may_be_groups"]

Array = np.ndarray[Any, Any]

GROUP_SIZES = (128, 64, 32)
"""Values on one scale, the most first: larger groups are several of these."""

MIDDLE = 8
"""The zero point of groups whose codes are as good as signed."""

LARGEST = 15
_SIZES_TRIED = (*range(MIDDLE, 0, -1), *range(MIDDLE + 1, LARGEST + 1))
"""How many scales the largest magnitude of a group may be; those of signed codes first."""

_SHOWN = 32
"""Values of a row that have at most 16 different ones where they are of one group: floats hardly ever do."""

_BLOCK = 1 << 20  # values that are worked on at once


@dataclass(frozen=True)
class GroupedWeight:
    """A matrix as codes, its groups along the last of two axes: rows.

    Attributes:
        codes: uint8 [rows, half of the inputs, rounded up], two codes in a byte, the first one in the low
            half.
        scale: float32 [rows, groups], of either sign.
        zero_point: uint8 [rows, groups]; None where all are MIDDLE.
        inputs: values of a row; the last group may have fewer than the others.
        axis: of the matrix, along which the groups lie.
        dtype: of the matrix, one of FLOATS.
    """

    codes: Array
    scale: Array
    zero_point: Array | None
    group_size: int
    inputs: int
    axis: int
    dtype: str

    def __post_init__(self) -> None:
        """Raises ValueError where the parts do not belong together."""
        rows, kinds = len(self.codes), (str(self.codes.dtype), str(self.scale.dtype))
        groups = (rows, -(-self.inputs // self.group_size)) if self.group_size in GROUP_SIZES else None
        is_whole = self.codes.shape == (rows, -(-self.inputs // 2)) and self.scale.shape == groups
        zeros = self.zero_point
        has_zeros = zeros is None or (str(zeros.dtype) == "uint8" and zeros.shape == groups)
        if kinds != ("uint8", "float32") or not is_whole or not has_zeros:
            raise ValueError(f"codes of {self.codes.shape} and scales of {self.scale.shape}, {kinds}")
        if self.axis not in (0, 1) or self.dtype not in FLOATS:
            raise ValueError(f"groups along axis {self.axis!r} of {self.dtype}")

    @property
    def nbytes(self) -> int:
        """Of the codes, their scales and zero points."""
        return sum(int(array.nbytes) for array in self.arrays)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All that is held."""
        return (self.codes, self.scale, *(() if self.zero_point is None else (self.zero_point,)))

    def rows(self) -> Array:
        """The codes one by one, uint8 [rows, inputs]."""
        pairs = np.stack([self.codes & 0xF, self.codes >> 4], axis=-1)
        return pairs.reshape(len(self.codes), -1)[:, : self.inputs]


def as_groups(weight: Array, axis: int | None = None) -> GroupedWeight | None:
    """A matrix as codes in the largest groups that it has; None where it is none, or no codes times scales.

    Args:
        axis: along which the groups have to lie; None for either.
    """
    for along, rows in _spellings(weight, axis):
        for size in GROUP_SIZES:
            if rows.shape[1] < size:
                continue
            found = _found(rows, size)
            if found is not None:
                codes, zeros, scale = found
                shape = (len(rows), -1)
                zeros = zeros.reshape(shape)
                return GroupedWeight(
                    codes=_packed(codes.reshape(shape)[:, : rows.shape[1]]),
                    scale=scale.reshape(shape),
                    zero_point=None if (zeros == MIDDLE).all() else zeros,
                    group_size=size,
                    inputs=rows.shape[1],
                    axis=along,
                    dtype=str(weight.dtype),
                )
    return None


def may_be_groups(weight: Array) -> bool:
    """Whether `as_groups` would have to read a matrix: quick, for it looks at a few parts of it."""
    return next(_spellings(weight, None), None) is not None


def _spellings(weight: Array, axis: int | None) -> Iterator[tuple[int, Array]]:
    """Along which axes a matrix may be in groups, and its rows along each."""
    if weight.ndim != 2 or str(weight.dtype) not in FLOATS:
        return
    for along in (1, 0) if axis is None else (axis,):
        rows = weight if along else weight.T
        if rows.shape[1] >= min(GROUP_SIZES) and len(rows) and _may_hold(rows):
            yield along, rows


def _may_hold(rows: Array) -> bool:
    """Whether a few rows begin with few different values: most weights that are no codes are found out."""
    picked = {0, len(rows) // 2, len(rows) - 1}
    return all(len(np.unique(rows[place, :_SHOWN].astype(np.float32))) <= LARGEST + 1 for place in picked)


def _found(rows: Array, size: int) -> tuple[Array, Array, Array] | None:
    """Codes, zero points and scales of all groups of a size; None where one has none."""
    parts = []
    for part in _parts(rows, size):
        codes, zeros, scale, is_right = _solved(part)
        if not is_right.all():
            return None
        parts.append((codes, zeros, scale))
    codes, zeros, scale = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return codes, zeros, scale


def _parts(rows: Array, size: int) -> Iterator[Array]:
    """The groups of some rows at a time, [groups, size], zeros behind the last one; a few rows first."""
    count, step = -(-rows.shape[1] // size), max(1, _BLOCK // rows.shape[1])
    bounds = [0, *range(min(step, 4), len(rows), step), len(rows)]
    for start, stop in zip(bounds, bounds[1:], strict=False):
        padded = np.zeros((stop - start, count * size), rows.dtype)
        padded[:, : rows.shape[1]] = rows[start:stop]
        yield padded.reshape(-1, size)


def _solved(groups: Array) -> tuple[Array, Array, Array, Array]:
    """uint8 codes [groups, size], uint8 zero points, float32 scales, and which groups are just these."""
    codes = np.zeros(groups.shape, np.uint8)
    zeros = np.full(len(groups), MIDDLE, np.uint8)
    scale = np.ones(len(groups), np.float32)
    tops = np.abs(groups.astype(np.float32)).max(axis=1)
    is_right = tops == 0
    codes[is_right] = MIDDLE
    for largest in _SIZES_TRIED:
        left = np.flatnonzero(~is_right & np.isfinite(tops))
        if not len(left):
            break
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of groups that are no codes
            found = _on_size(groups[left], tops[left], largest)
        codes[left], zeros[left], scale[left], is_right[left] = found
    return codes, zeros, scale, is_right


def _on_size(groups: Array, tops: Array, largest: int) -> tuple[Array, Array, Array, Array]:
    """The same where each group's largest magnitude is `largest` scales."""
    scale = tops / np.float32(largest)
    whole = np.rint(groups.astype(np.float32) / scale[:, None])
    is_right = _gives(groups, whole, scale)
    others = np.flatnonzero(~is_right)  # whose largest magnitude was rounded
    scale[others], is_possible = _between(groups[others], np.abs(whole[others]))
    is_right[others] = is_possible & _gives(groups[others], whole[others], scale[others])
    bottom, top = whole.min(axis=1), whole.max(axis=1)
    is_turned = (bottom > -MIDDLE) & (top == MIDDLE)  # signed codes reach farther down than up
    turn = np.where(is_turned, np.float32(-1), np.float32(1))
    is_signed = is_turned | ((bottom >= -MIDDLE) & (top < MIDDLE))
    zeros = np.where(is_signed, MIDDLE, np.maximum(-bottom, 0)).astype(np.float32)
    codes = np.clip(whole * turn[:, None] + zeros[:, None], 0, LARGEST).astype(np.uint8)
    is_right &= is_signed | (top + zeros <= LARGEST)
    return codes, zeros.astype(np.uint8), scale * turn, is_right


def _gives(groups: Array, whole: Array, scale: Array) -> Array:
    """Which groups are just these numbers of scales."""
    made = (whole * scale[:, None]).astype(groups.dtype)
    return np.asarray((made == groups).all(axis=1))


def _between(groups: Array, sizes: Array) -> tuple[Array, Array]:
    """Scales of which `sizes` round to the groups' magnitudes, float32, and whether there may be such."""
    least, most = middles(np.abs(groups))
    low = np.where(sizes > 0, least / np.maximum(sizes, 1), 0.0).max(axis=1)
    high = np.where(sizes > 0, most / np.maximum(sizes, 1), np.inf).min(axis=1)
    return ((low + high) / 2).astype(np.float32), low <= high


def _packed(codes: Array) -> Array:
    """Two codes in a byte."""
    even = np.zeros((len(codes), codes.shape[1] + codes.shape[1] % 2), np.uint8)
    even[:, : codes.shape[1]] = codes
    return np.asarray(even[:, 0::2] | (even[:, 1::2] << 4))
