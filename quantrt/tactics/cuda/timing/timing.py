# SPDX-License-Identifier: Apache-2.0
"""What timing a tactic gave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from quantrt.errors import InternalError

__all__ = ["Timing", "timing_of"]

DIGITS = 3
"""Decimals of a time in microseconds: whole nanoseconds, so that text and number are the same."""


@dataclass(frozen=True)
class Timing:
    """Microseconds of one run, over several runs.

    Attributes:
        median_us, p20_us, p80_us: quantiles, rounded to whole nanoseconds.
        samples: how many runs, or groups of runs, were timed.
    """

    median_us: float
    p20_us: float
    p80_us: float
    samples: int


def timing_of(samples_us: Sequence[float]) -> Timing:
    """The quantiles of samples, linear between them.

    Raises:
        InternalError: there are no samples, or one is not a positive number.
    """
    if not samples_us or not all(math.isfinite(sample) and sample > 0 for sample in samples_us):
        raise InternalError("cannot make a timing of these samples", got=str(list(samples_us)[:5]))
    ordered = sorted(samples_us)
    median_us, p20_us, p80_us = (round(_quantile(ordered, q), DIGITS) for q in (0.5, 0.2, 0.8))
    return Timing(median_us, p20_us, p80_us, len(ordered))


def _quantile(ordered: Sequence[float], q: float) -> float:
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
