# SPDX-License-Identifier: Apache-2.0
"""The scale of each row of a weight by least squared error, in few passes over it.

    error(s) = s^2 * sum((min(rint(a / s), qmax) - a / s)^2),  a = |row|

What a scale clips costs more the smaller the scale is, and follows from the few largest values. Where that
alone exceeds the least error so far, no smaller scale is tried: what is found is the least error of all.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from quantrt.errors import ModelError

__all__ = ["BLOCK_ELEMENTS", "CLIP_RATIOS", "least_error_scale", "row_amax", "usable_scale"]

Array = np.ndarray[Any, Any]

CLIP_RATIOS = np.linspace(1.0, 0.8, 11)
"""Parts of a weight row's largest value that are tried as its bound. A Gaussian is best clipped near 3.9
sigma at 8 bits (Banner et al. 2019, "ACIQ"); only long rows go beyond."""

BLOCK_ELEMENTS = 1 << 19
"""Of a weight that are rounded at a time: three arrays of so many floats stay in a processor's cache. Several
weights are rounded, in threads: with far fewer elements these wait for each other between numpy's calls."""

SUMMED = 1024
"""Squares that are added in float32, before the sum goes on in float64: off by 1024 / 2^24 at most."""

MARGIN = 1e-3
"""By how much clipping must exceed the least error to end a row's search: more than sums are off."""


def usable_scale(scale: Array) -> Array:
    """Scales as float32; 1 for those below the smallest normal number, which some libraries flush to zero."""
    scale = np.asarray(scale, np.float32)
    return np.where(scale >= np.finfo(np.float32).tiny, scale, np.float32(1.0))


def row_amax(rows: Array) -> Array:
    """The largest magnitude of each row, float32 [C].

    Raises:
        ModelError: a value is NaN or infinite.
    """
    highest, lowest = rows.max(axis=1, initial=0.0), rows.min(axis=1, initial=0.0)
    amax: Array = np.maximum(highest, -lowest).astype(np.float32)
    if not np.all(np.isfinite(amax)):
        raise ModelError("cannot quantize a weight with NaN or infinite values")
    return amax


def least_error_scale(rows: Array, qmax: int) -> Array:
    """Among CLIP_RATIOS of each row's largest value over qmax, the scale of least error.

    Args:
        rows: float [C, n]; fastest where either axis is contiguous.

    Returns:
        float32 [C]; 0 for a row of zeros.

    Raises:
        ModelError: a value is NaN or infinite.
    """
    count = max(1, BLOCK_ELEMENTS // max(rows.shape[1], 1))
    memory, *scratch = (np.empty(rows[:count].size, np.float32) for _ in range(3))
    scale = np.empty(len(rows), np.float32)
    for first in range(0, len(rows), count):
        part = rows[first : first + count]
        magnitudes = np.abs(part, out=_laid_out(memory, part), casting="same_kind")
        scale[first : first + count] = _best_of_rows(magnitudes, qmax, scratch)
    return scale


def _order(rows: Array) -> Literal["C", "F"]:
    """Whether a row is closer together in memory than a column is."""
    return "C" if rows.strides[0] >= rows.strides[1] else "F"


def _laid_out(memory: Array, rows: Array) -> Array:
    """The beginning of some memory, in the shape and the order of `rows`, without gaps."""
    laid_out: Array = memory[: rows.size].reshape(rows.shape, order=_order(rows))
    return laid_out


def _best_of_rows(magnitudes: Array, qmax: int, scratch: list[Array]) -> Array:
    """The scale of each row among CLIP_RATIOS of its largest value."""
    tried = row_amax(magnitudes) * CLIP_RATIOS.astype(np.float32)[:, None] / np.float32(qmax)
    best: Array = tried[0].copy()
    least = _error(magnitudes, best, qmax, scratch)
    clipped = _Clipped(magnitudes, tried[-1] * np.float32(qmax))
    left = np.arange(len(best))
    for scales in tried[1:]:
        may_gain = clipped.error(scales * np.float32(qmax))[left] < least[left] * (1 + MARGIN)
        if not may_gain.all():
            left, magnitudes = left[may_gain], magnitudes[may_gain]  # row by row in memory from here on
        if not left.size:
            break
        error = _error(magnitudes, scales[left], qmax, scratch)
        gains = error < least[left]
        best[left[gains]], least[left[gains]] = scales[left[gains]], error[gains]
    return best


class _Clipped:
    """The largest values of some rows, and what is lost of them at a bound."""

    def __init__(self, magnitudes: Array, bounds: Array) -> None:
        """Find the values beyond the lowest bounds that will be asked for, one of each row."""
        order = _order(magnitudes)
        places = np.flatnonzero((magnitudes > bounds[:, None]).ravel(order))
        self._rows, columns = np.unravel_index(places, magnitudes.shape, order)
        self._values = magnitudes[self._rows, columns]
        self._count = len(magnitudes)

    def error(self, bounds: Array) -> Array:
        """Of each row, the squares of what its values have beyond its bound: float64 [C]."""
        beyond = np.maximum(self._values - bounds[self._rows], 0).astype(np.float64)
        squares: Array = np.bincount(self._rows, beyond * beyond, self._count)
        return squares


def _error(magnitudes: Array, scale: Array, qmax: int, scratch: list[Array]) -> Array:
    """Squared error of each row on its scale, float64 [C]."""
    steps, codes = (_laid_out(memory, magnitudes) for memory in scratch)
    np.divide(magnitudes, usable_scale(scale)[:, None], out=steps)
    np.rint(steps, out=codes)
    np.minimum(codes, qmax, out=codes)
    codes -= steps
    squares = np.zeros(len(magnitudes))
    for first in range(0, codes.shape[1], SUMMED):
        part = codes[:, first : first + SUMMED]
        squares += np.einsum("ij,ij->i", part, part)
    return squares * np.square(scale, dtype=np.float64)
