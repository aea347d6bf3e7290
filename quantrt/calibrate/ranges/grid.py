# SPDX-License-Identifier: Apache-2.0
"""The integer grid a tensor will be put on, and the noise that does to a histogram."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quantrt.calibrate.histogram import bin_edges
from quantrt.calibrate.stats import TensorStats
from quantrt.errors import UsageError

__all__ = ["Bins", "Grid", "noise_power"]

Doubles = npt.NDArray[np.float64]

NARROW_RATIO = 1e-3
"""Bins narrower than this part of a step are taken as points: a rounding boundary inside one moves its
squared error by less than 1e-3 of a step, and the exact integral would cancel for much narrower ones."""


@dataclass(frozen=True)
class Grid:
    """What a target stores an activation as.

    Attributes:
        levels: number of codes; 256 for 8 bits, 255 where the lowest is left out.
        symmetric: the zero point is fixed: 0, also the lowest code of an unsigned grid.
        signed: codes reach from -(levels // 2) to (levels - 1) // 2, otherwise from 0 to levels - 1.
    """

    levels: int = 256
    symmetric: bool = False
    signed: bool = False

    def __post_init__(self) -> None:
        if self.levels < 2 + self.signed:
            raise UsageError("cannot quantize to so few levels", got=str(self.levels), expected="at least 3")

    @property
    def qmin(self) -> int:
        """The lowest code."""
        return -(self.levels // 2) if self.signed else 0

    @property
    def qmax(self) -> int:
        """The highest code."""
        return (self.levels - 1) // 2 if self.signed else self.levels - 1

    def scale_and_zero(self, lo: Doubles, hi: Doubles) -> tuple[Doubles, Doubles]:
        """Step and zero point for ranges [lo, hi] with lo <= 0 <= hi, float64; a zero range gives scale 1.

        Symmetric: scale = max(hi / qmax, lo / qmin), so that neither side is clipped.
        Asymmetric: scale = (hi - lo) / (qmax - qmin), zero_point = rint(qmin - lo / scale).
        """
        if self.symmetric:
            scale = np.maximum(hi / self.qmax, lo / self.qmin) if self.signed else hi / self.qmax
        else:
            scale = (hi - lo) / (self.levels - 1)
        scale = np.where(scale > 0, scale, 1.0)
        zero = np.zeros_like(scale) if self.symmetric else np.rint(self.qmin - lo / scale)
        return scale, np.clip(zero, self.qmin, self.qmax)


@dataclass(frozen=True)
class Bins:
    """The occupied bins of a histogram, each cut to the exact bounds of the tensor; ascending.

    Attributes:
        left, right: float64 [B], edges.
        count: float64 [B], values inside, all > 0.
    """

    left: Doubles
    right: Doubles
    count: Doubles

    @classmethod
    def of(cls, stats: TensorStats) -> Bins:
        """The bins of one tensor's statistics."""
        keys = np.flatnonzero(stats.counts)
        left, right = bin_edges(keys)
        order = np.lexsort((right, left))
        return cls(
            np.clip(left, stats.lo, stats.hi)[order],
            np.clip(right, stats.lo, stats.hi)[order],
            stats.counts[keys].astype(np.float64)[order],
        )

    @property
    def power(self) -> float:
        """Sum of the squares of the values, spread evenly over each bin."""
        return float(np.sum(self.count * _mean_square(self.left, self.right)))

    def merged_below(self, limit: float) -> Bins:
        """The same with every bin inside [-limit, limit] replaced by one of equal power per side of zero.

        Values that every candidate grid rounds to zero need no bin each.
        """
        inside = (self.left >= -limit) & (self.right <= limit)
        if np.count_nonzero(inside) < 3:
            return self
        count = self.count[inside]
        root = float(
            np.sqrt(np.sum(count * _mean_square(self.left[inside], self.right[inside])) / count.sum())
        )
        return Bins(
            np.append(self.left[~inside], root),
            np.append(self.right[~inside], root),
            np.append(self.count[~inside], count.sum()),
        )


def noise_power(bins: Bins, lo: Doubles, hi: Doubles, grid: Grid) -> Doubles:
    """Expected sum of squared errors of the values in `bins` on the grid of each range [lo, hi].

    Rounding and clipping together: values are taken as spread evenly over their bin, and the squared
    distance to the nearest code is integrated over it.

    Args:
        lo, hi: float64 [C], lo <= 0 <= hi.

    Returns:
        float64 [C].
    """
    scale, zero = grid.scale_and_zero(lo, hi)
    scale, zero = scale[:, None], zero[:, None]
    left, right = bins.left / scale, bins.right / scale
    low_code, high_code = grid.qmin - zero, grid.qmax - zero
    width = right - left
    wide = width > NARROW_RATIO
    middle = (left + right) / 2
    point_error = middle - np.clip(np.rint(middle), low_code, high_code)
    narrow_error = point_error**2 + width**2 / 12
    total = _integral(right, low_code, high_code) - _integral(left, low_code, high_code)
    error = np.where(wide, total / np.where(wide, width, 1.0), narrow_error)
    return np.asarray(error @ bins.count * scale[:, 0] ** 2)


def _integral(x: Doubles, low: Doubles, high: Doubles) -> Doubles:
    """Integral from 0 to x of (t - clip(rint(t), low, high))**2 dt, for low <= 0 <= high.

    Each whole code passed adds the integral over one step, 1/12; what is left of x beyond the nearest
    code, or beyond the last one, adds a third of its cube.
    """
    code = np.clip(np.rint(x), low, high)
    rest = x - code
    return np.asarray(code / 12 + rest * rest * rest / 3)  # rest**3 goes through pow, ten times slower


def _mean_square(left: Doubles, right: Doubles) -> Doubles:
    """Mean of x**2 for x spread evenly over [left, right]."""
    return np.asarray((left * left + left * right + right * right) / 3)
