# SPDX-License-Identifier: Apache-2.0
"""From a tensor's histogram to the range that is quantized."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quantrt.calibrate.ranges.entropy import entropy_threshold
from quantrt.calibrate.ranges.grid import Bins, Grid, noise_power
from quantrt.calibrate.ranges.percentile import percentile_bounds
from quantrt.calibrate.ranges.search import search_least_noise
from quantrt.calibrate.stats import TensorStats
from quantrt.config import RANGE_METHODS, CalibrationConfig
from quantrt.errors import InternalError

__all__ = ["Grid", "Range", "choose_range", "range_noise_ratio"]

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Range:
    """What is kept of a tensor.

    Attributes:
        lo, hi: lo <= 0 <= hi; values outside are clipped.
        method: how it was chosen; for "auto" the method that won.
        error_ratio: quantization noise power over signal power on the tensor's histogram; 0 for a tensor
            that is always zero.
    """

    lo: float
    hi: float
    method: str
    error_ratio: float


def choose_range(stats: TensorStats, grid: Grid, config: CalibrationConfig) -> Range:
    """The range of one tensor by config.method, and its measured error on `grid`.

    auto takes the method whose range has the least noise on the histogram; the earlier of
    minmax, entropy, percentile, mse wins a tie. Multiplying every value by a power of two multiplies the
    range by it exactly.
    """
    bins = Bins.of(stats)
    methods = [m for m in RANGE_METHODS if m != "auto"] if config.method == "auto" else [config.method]
    bounds = [_bounds(method, stats, bins, grid, config) for method in methods]
    noise = noise_power(bins, np.array([b[0] for b in bounds]), np.array([b[1] for b in bounds]), grid)
    best = int(np.argmin(noise))
    power = bins.power
    error_ratio = float(noise[best]) / power if power > 0 else 0.0
    return Range(*bounds[best], methods[best], error_ratio)


def range_noise_ratio(stats: TensorStats, lo: float, hi: float, grid: Grid) -> float:
    """Noise power over signal power of a tensor quantized to a given range; 0 when it is always zero."""
    bins = Bins.of(stats)
    noise = float(noise_power(bins, np.array([min(lo, 0.0)]), np.array([max(hi, 0.0)]), grid)[0])
    return noise / bins.power if bins.power > 0 else 0.0


def _bounds(method: str, stats: TensorStats, bins: Bins, grid: Grid, config: CalibrationConfig) -> Bounds:
    lo, hi = min(stats.lo, 0.0), max(stats.hi, 0.0)
    if method == "minmax" or lo == hi:
        return lo, hi
    if method == "percentile":
        return percentile_bounds(bins, lo, hi, config.percentile / 100, per_side=not grid.symmetric)
    if method == "entropy":
        threshold = entropy_threshold(bins, grid)
        return max(lo, -threshold), min(hi, threshold)
    if method == "mse":
        return search_least_noise(bins, lo, hi, grid)
    raise InternalError(f"range method '{method}' has no implementation")
