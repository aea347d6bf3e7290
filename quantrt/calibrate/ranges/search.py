# SPDX-License-Identifier: Apache-2.0
"""The range with the least quantization noise, searched from coarse to fine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from quantrt.calibrate.ranges.grid import Bins, Doubles, Grid, noise_power

__all__ = ["search_least_noise"]

LEAST_LOG_RATIO = -12.0
"""Thresholds are tried down to 2**-12 of the greatest magnitude: a few outliers of thousands of times the
typical value still leave a use for clipping."""
COARSE = np.linspace(0.0, LEAST_LOG_RATIO, 49)
"""Four thresholds per octave. Noise is not unimodal in the threshold, so a bracketing search could miss."""
FINE = np.linspace(-1.0, 1.0, 17)
SPACINGS = (1 / 4, 1 / 32)
"""Each refinement divides the spacing by 8, to 2**(1/256), 0.3 % of the threshold."""
ROUNDS = 4
"""Passes over the two sides of an asymmetric range; it stops earlier when a pass changes nothing."""

Candidates = tuple[Doubles, Doubles]
Found = tuple[float, float, float]
"""Noise, lo, hi: the least of several is the best."""


def search_least_noise(bins: Bins, lo: float, hi: float, grid: Grid) -> tuple[float, float]:
    """The range inside [lo, hi] with the least noise found; never worse than [lo, hi] itself.

    On a symmetric grid, or when the tensor has one sign, one threshold is searched. Otherwise the two
    sides shrink together first; then, from there and from [lo, hi], each one separately.
    """
    smallest = 2.0 ** (LEAST_LOG_RATIO - 1)
    least_scale = float(grid.scale_and_zero(np.array([lo * smallest]), np.array([hi * smallest]))[0][0])
    bins = bins.merged_below(least_scale / 2)

    def noise_of(candidates: Candidates) -> Doubles:
        return noise_power(bins, *candidates, grid)

    amax = max(-lo, hi)
    both = _search_line(lambda ratio: (np.maximum(lo, -ratio * amax), np.minimum(hi, ratio * amax)), noise_of)
    if grid.symmetric or lo == 0.0 or hi == 0.0:
        return both[1:]
    whole = (float(noise_of((np.array([lo]), np.array([hi])))[0]), lo, hi)
    return min(_descend(start, lo, hi, noise_of) for start in (both, whole))[1:]


def _descend(best: Found, lo: float, hi: float, noise_of: Callable[[Candidates], Doubles]) -> Found:
    """Improve each side in turn until neither helps."""
    for _ in range(ROUNDS):
        before = best[0]
        best = min(best, _search_line(_lower_sides(lo, best[2]), noise_of))
        best = min(best, _search_line(_upper_sides(best[1], hi), noise_of))
        if best[0] >= before:
            break
    return best


def _lower_sides(lo: float, high: float) -> Callable[[Doubles], Candidates]:
    return lambda ratio: (lo * ratio, np.full_like(ratio, high))


def _upper_sides(low: float, hi: float) -> Callable[[Doubles], Candidates]:
    return lambda ratio: (np.full_like(ratio, low), hi * ratio)


def _search_line(
    range_at: Callable[[Doubles], Candidates], noise_of: Callable[[Candidates], Doubles]
) -> Found:
    """The least noise over ratios 2**-12..1 of a family of ranges; ratio 1 is always among those tried."""
    noise, log = _least(COARSE, range_at, noise_of)
    for spacing in SPACINGS:
        finer = np.minimum(log + FINE * spacing, 0.0)
        noise, log = min((noise, log), _least(finer, range_at, noise_of))
    low, high = range_at(np.exp2(np.array([log])))
    return noise, float(low[0]), float(high[0])


def _least(
    logs: Doubles, range_at: Callable[[Doubles], Candidates], noise_of: Callable[[Candidates], Doubles]
) -> tuple[float, float]:
    noise = noise_of(range_at(np.exp2(logs)))
    index = int(np.argmin(noise))
    return float(noise[index]), float(logs[index])
