# SPDX-License-Identifier: Apache-2.0
"""Ranges that leave out a given share of the values."""

from __future__ import annotations

import numpy as np

from quantrt.calibrate.ranges.grid import Bins, Doubles

__all__ = ["percentile_bounds"]


def percentile_bounds(
    bins: Bins, lo: float, hi: float, coverage_ratio: float, *, per_side: bool
) -> tuple[float, float]:
    """The part of [lo, hi] that holds `coverage_ratio` of the values.

    Args:
        lo, hi: bounds of the tensor, widened to contain 0.
        per_side: leave out half of the rest at each end, for grids that can shift. Otherwise the same
            magnitude bounds both sides.
    """
    if not per_side or lo == 0 or hi == 0:
        left, right = np.abs(bins.left), np.abs(bins.right)
        threshold = _quantile(np.minimum(left, right), np.maximum(left, right), bins.count, coverage_ratio)
        return max(lo, -threshold), min(hi, threshold)
    kept = (1 + coverage_ratio) / 2
    upper = _quantile(bins.left, bins.right, bins.count, kept)
    lower = -_quantile(-bins.right, -bins.left, bins.count, kept)
    return min(max(lo, lower), 0.0), max(min(hi, upper), 0.0)


def _quantile(left: Doubles, right: Doubles, count: Doubles, ratio: float) -> float:
    """The value that `ratio` of the values do not exceed, interpolated inside its bin."""
    order = np.argsort(left, kind="stable")
    left, right, count = left[order], right[order], count[order]
    below = np.cumsum(count)
    index = min(int(np.searchsorted(below, ratio * below[-1])), len(count) - 1)
    inside = (ratio * below[-1] - (below[index] - count[index])) / count[index]
    return float(left[index] + (right[index] - left[index]) * min(inside, 1.0))
