# SPDX-License-Identifier: Apache-2.0
"""Timing candidates on a GPU that slows down under them.

At its limit of power a GPU lowers its clock within tenths of a second, by as much as the kernels that run ask
of it. A short turn is then as fast as the candidate before it left the clock: too fast behind one that takes
little power, too slow behind one that takes much. On an H200 a BERT-large that took 8.7 ms in turns of
milliseconds took 9.7 ms for as long as it was asked (at 6b8eae3).

    if slows_down(run):
        run = Led(run)        # every turn behind a lead, which leaves the clock where this candidate has it
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from quantrt.tactics.timing import TimesItself

__all__ = ["LEAD_MS", "Led", "slows_down"]

LEAD_MS = 200.0
"""Of a candidate's runs, after which the clock is its own."""

REST_S = 0.3
"""After which the clock is up again."""

RESTED_MS = 20.0
"""Of a candidate's runs behind a rest, in which the clock is still up."""

SLOWER_RATIO = 1.02
"""By which runs take longer where the clock falls; medians differ by less than half of that otherwise."""

MIN_RUNS = 3
MAX_RUNS = 4096
"""Runs so short that more are needed leave gaps between kernels, and take less power than there is."""


class Led:
    """A run whose times are those behind LEAD_MS of the same."""

    def __init__(self, run: TimesItself) -> None:
        self._run = run
        self._lead_runs = _count(LEAD_MS, _one_ms(run))

    def __call__(self) -> object:
        """Run once."""
        return self._run()

    def times_ms(self, count: int) -> list[float]:
        """Milliseconds of the last `count` runs."""
        return self._run.times_ms(self._lead_runs + count)[self._lead_runs :]


def slows_down(run: TimesItself) -> bool:
    """Whether runs that follow each other for 2 LEAD_MS take longer in the second half than behind a rest."""
    one_ms = _one_ms(run)
    time.sleep(REST_S)
    times_ms = run.times_ms(_count(2 * LEAD_MS, one_ms))
    rested = times_ms[: _count(RESTED_MS, one_ms)]
    return _median(times_ms[len(times_ms) // 2 :]) > SLOWER_RATIO * _median(rested)


def _one_ms(run: TimesItself) -> float:
    return max(min(run.times_ms(MIN_RUNS)), 1e-3)


def _count(total_ms: float, one_ms: float) -> int:
    return min(max(math.ceil(total_ms / one_ms), MIN_RUNS), MAX_RUNS)


def _median(times_ms: Sequence[float]) -> float:
    return float(np.median(times_ms))
