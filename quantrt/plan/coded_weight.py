# SPDX-License-Identifier: Apache-2.0
"""A weight of floats that is 8-bit codes times scales, held as these: a byte per value, and the same values.

    weight = dtype(float32(codes) * scale)     # scale: float32, one, or one for every place along an axis

The kernel that is fastest for a quantized layer may multiply floats. Its weight has been transposed, padded
or put in turns by then; that it is codes times scales still shows in its values, whatever their layout, and
is what is looked for. A magnitude that a code rounds to tells between which numbers the scale is; all of a
row's magnitudes together tell it well enough to give every value again, but for the sign of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from quantrt.dtypes import CODE_TYPES, DType
from quantrt.quantize.scales.qparams import QParams, dequantize, quantize_array

__all__ = ["FLOATS", "CodedWeight", "as_codes", "may_be_codes", "middles"]

Array = np.ndarray[Any, Any]

FLOATS = {np.dtype(kind).name: np.dtype(kind) for kind in (np.float32, np.float16, ml_dtypes.bfloat16)}
"""The types of weights that may be held as codes."""

MIN_ROW = 8
"""Values on one scale, at least: with fewer the scales take much of what the codes save."""

SAMPLE = 2048
"""Of a row: so many values of a weight that is no codes are hardly ever as few numbers as codes are."""

FEW = 2 * 128
"""Most have more numbers in so many already. In a column of a mapped file each of them may be a page."""

SURE = 32.0
"""Up to this, codes are told by a scale that is off by the rounding of the largest value, 2**-9 in bfloat16.
Together they tell the scale well enough for the others."""

_TRIED_OF_CODE = 8
"""In how many parts of a code the value of a row's largest code before it was rounded is guessed."""

_BLOCK = 1 << 22  # values that are worked on at once
_FAR = 1e300  # above every scale


@dataclass(frozen=True)
class CodedWeight:
    """A weight as codes.

    Attributes:
        codes: int8 or FP8, shaped like the weight.
        scale: float32 [C], C places along `axis`, or [1].
        axis: of the scales; None where there is one.
        dtype: of the weight, one of FLOATS.
    """

    codes: Array
    scale: Array
    axis: int | None
    dtype: str

    def __post_init__(self) -> None:
        """Raises ValueError where the parts do not belong together."""
        shape, axis, kind = self.codes.shape, self.axis, str(self.codes.dtype)
        if self.dtype not in FLOATS or kind not in _GRIDS or self.scale.dtype != np.float32:
            raise ValueError(f"codes of {kind} and scales of {self.scale.dtype} for {self.dtype}")
        if axis is not None and (type(axis) is not int or not 0 <= axis < len(shape)):
            raise ValueError(f"scales along axis {axis!r} of {len(shape)}")
        if self.scale.shape != (1 if axis is None else shape[axis],):
            raise ValueError(f"scales of shape {self.scale.shape} for codes of shape {shape} along {axis}")

    @property
    def nbytes(self) -> int:
        """Of the codes and their scales."""
        return sum(int(array.nbytes) for array in self.arrays)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All that is held."""
        return self.codes, self.scale

    def scale_shape(self) -> tuple[int, ...]:
        """The shape with which the scales stretch over the codes."""
        return tuple(n if place == self.axis else 1 for place, n in enumerate(self.codes.shape))


def as_codes(weight: Array) -> CodedWeight | None:
    """A weight as codes; None where it is of another type, or its values are no codes times scales."""
    for axis, channels, grid in _spellings(weight):
        found = grid.codes_of(channels, has_top=axis is not None)
        if found is not None:
            codes = found[0].reshape(channels.shape)
            codes = codes[0] if axis is None else np.moveaxis(codes, 0, axis)
            return CodedWeight(np.ascontiguousarray(codes), found[1], axis, str(weight.dtype))
    return None


def may_be_codes(weight: Array) -> bool:
    """Whether `as_codes` would have to read a weight: quick, for it looks at a few parts of it."""
    return next(_spellings(weight), None) is not None


def _spellings(weight: Array) -> Iterator[tuple[int | None, Array, _Grid]]:
    """Along which axes, and of which type, a weight may be codes by a few of its channels."""
    if str(weight.dtype) not in FLOATS or weight.size < MIN_ROW:
        return
    for axis in (None, *(place for place, n in enumerate(weight.shape) if n > 1)):
        channels = weight[None] if axis is None else np.moveaxis(weight, axis, 0)
        if channels[0].size >= MIN_ROW:
            yield from ((axis, channels, grid) for grid in _GRIDS.values() if grid.may_hold(channels))


@dataclass(frozen=True)
class _Grid:
    """Codes of one type, and rows of floats as such."""

    dtype: DType

    @cached_property
    def levels(self) -> Array:
        """What each code stands for, from 0 up, float64."""
        codes = np.arange(128, dtype=np.uint8).view(self.dtype.name).astype(np.float64)
        return codes[np.isfinite(codes)]

    def may_hold(self, channels: Array) -> bool:
        """Whether parts of a few channels are codes: most weights that are none are found out here."""
        picked = {0, len(channels) // 2, len(channels) - 1}
        parts = (channels[place].reshape(-1) for place in picked)
        return all(self._search(part[:n]) is not None for part in parts for n in (FEW, SAMPLE))

    def codes_of(self, channels: Array, *, has_top: bool) -> tuple[Array, Array] | None:
        """The codes of every channel in a row and its scale, float32 [C]; None where a channel has none.

        Args:
            has_top: most rows reach the largest code, which tells about where their scale is; the few others
                are searched one by one. Otherwise what is found in a part of the row tells.
        """
        rows = channels.reshape(len(channels), -1)
        if not np.isfinite(rows).all():
            return None
        if has_top:
            tops = np.maximum(rows.max(axis=1), -rows.min(axis=1)).astype(np.float64)
            scale = np.where(tops > 0, tops / self.levels[-1], 1.0)
        else:
            scale = np.array([self._search(rows[0, :SAMPLE])], np.float64)
        for largest in (SURE, self.levels[-1]):
            scale = _nearer(scale, *_bounds(self.levels, self._magnitudes(rows, scale), largest))
        codes, is_right = self._coded(rows, scale)
        for row in np.flatnonzero(~is_right):
            scale[row] = self._search(rows[row]) or 1.0
            codes[row], is_right[row] = self._coded(rows[[row]], scale[[row]])
            if not is_right[row]:
                return None
        return codes, scale.astype(np.float32)

    def _search(self, row: Array) -> float | None:
        """A scale on which all values of a row are codes, whichever is the largest; None without any."""
        seen = np.unique(_bits(np.ascontiguousarray(row)))
        magnitudes = seen[seen > 0].view(row.dtype)
        if not len(magnitudes):
            return 1.0
        if len(magnitudes) >= len(self.levels) or not np.isfinite(magnitudes[-1]):
            return None
        least, most = (bound[-1] for bound in middles(magnitudes))
        tried = int(np.ceil(_TRIED_OF_CODE * len(self.levels) * (most - least) / most))
        tops = least + (most - least) * (np.arange(tried) + 0.5) / tried
        scale = (tops / self.levels[:0:-1, None]).reshape(-1)
        rows = np.broadcast_to(magnitudes, (len(scale), len(magnitudes)))
        scale = _nearer(scale, *_bounds(self.levels[self._places(rows, scale)], magnitudes, np.inf))
        _, is_right = self._coded(rows, scale)
        return float(scale[is_right][0]) if is_right.any() else None

    def _magnitudes(self, rows: Array, scale: Array) -> Array:
        """What each code of each row stands for, floats [C, levels]; 0 where the row has no such code."""
        table = np.zeros((len(rows), len(self.levels)), f"u{rows.itemsize}")
        for part in np.array_split(rows, 1 + rows.size // _BLOCK, axis=1):
            np.put_along_axis(table, self._places(part, scale), _bits(part), axis=1)
        return table.view(rows.dtype)

    def _places(self, rows: Array, scale: Array) -> Array:
        """Which of the levels the magnitude of each value is, on a scale for each row."""
        return quantize_array(np.abs(rows), self._qparams(scale)).view(np.uint8).astype(np.intp)

    def _coded(self, rows: Array, scale: Array) -> tuple[Array, Array]:
        """The codes of all values, and for each row whether they give its values again."""
        qparams = self._qparams(scale)
        codes = quantize_array(rows, qparams)
        return codes, (dequantize(codes, qparams).astype(rows.dtype) == rows).all(axis=1)

    def _qparams(self, scale: Array) -> QParams:
        largest = int(self.levels[-1])
        zeros = np.zeros(scale.shape, np.int32)
        return QParams(scale.astype(np.float32), zeros, self.dtype, 0, -largest, largest)


_GRIDS = {row.name: _Grid(row) for row in CODE_TYPES}


def _bounds(levels: Array, magnitudes: Array, largest: float) -> tuple[Array, Array]:
    """Between which scales the codes of each row, up to the largest, round to its magnitudes."""
    is_there = (magnitudes > 0) & (levels <= largest)
    least, most = (bound / np.where(levels > 0, levels, 1.0) for bound in middles(magnitudes))
    low = np.where(is_there, np.where(levels > 0, least, _FAR), 0.0)  # a code of 0 is no magnitude
    return low.max(axis=-1), np.where(is_there, most, _FAR).min(axis=-1)


def _bits(floats: Array) -> Array:
    """The bits of magnitudes: whole numbers in the same order."""
    bits = floats.view(f"u{floats.itemsize}")
    return bits & (np.iinfo(bits.dtype).max >> 1)


def middles(magnitudes: Array) -> Sequence[Array]:
    """Between which numbers everything rounds to a magnitude, float64; infinity rounds to the largest."""
    bits = _bits(magnitudes)
    one = bits.dtype.type(1)
    beside = (np.maximum(bits, one) - one, bits + one)
    return [
        (other.view(magnitudes.dtype).astype(np.float64) + magnitudes.astype(np.float64)) / 2
        for other in beside
    ]


def _nearer(scale: Array, low: Array, high: Array) -> Array:
    """The middle of each interval; where there is none the scale as it is."""
    return np.where((low <= high) & (high < _FAR), (low + high) / 2, scale)
