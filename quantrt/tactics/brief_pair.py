# SPDX-License-Identifier: Apache-2.0
"""Which of two small engines is faster, told in a few milliseconds of each before candidates are timed."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from quantrt.ir.collector import without_collector
from quantrt.tactics.latency import Latency, Paired, compare_paired

__all__ = ["is_surely_faster", "least_ms"]

log = logging.getLogger(__name__)

ROUNDS, TURN_RUNS = 12, 8
"""The fastest run of each turn counts: medians of so few would tell what else ran on the machine."""

FIRST_RUNS = 2
"""By which it is told whether to go on: a large model takes long for them."""

TURN_MS = 2.0
"""Of a turn, about; of what takes longer, two runs."""

FIRST_ROUNDS = 5
"""After which it is over where the first seems no faster: it would have to win nearly all that are left."""

SOON_ROUNDS, SOON_RATIO = 8, 0.98
"""After which it is over where the first took no more than this of the other's time in every round. To be
ahead in 8 of 8 is about as likely by chance as in 11 of 12; the margin makes up for another look."""


def least_ms(run: Callable[[], object], count: int = FIRST_RUNS) -> float:
    """Milliseconds of the fastest of a few runs, behind one that is not timed."""
    run()
    least = math.inf
    for _ in range(count):
        start = time.perf_counter()
        run()
        least = min(least, (time.perf_counter() - start) * 1e3)
    return least


def is_surely_faster(run: Callable[[], object], other: Callable[[], object]) -> bool:
    """Whether the first takes less time, by an interval of their ratio in rounds."""
    count = min(max(round(TURN_MS / max(least_ms(run), 1e-6)), FIRST_RUNS), TURN_RUNS)
    times: tuple[list[float], list[float]] = ([], [])
    with without_collector():
        for number in range(ROUNDS):
            for index in (0, 1) if number % 2 else (1, 0):
                times[index].append(least_ms((run, other)[index], count))
            if number + 1 == FIRST_ROUNDS and _compared(times).ratio >= 1.0:
                break
            if number + 1 == SOON_ROUNDS and _compared(times).hi <= SOON_RATIO:
                break
    pair = _compared(times)
    log.info("the first takes %.3f of the other's time (%.3f to %.3f)", pair.ratio, pair.lo, pair.hi)
    return pair.verdict == "faster"


def _compared(times: tuple[list[float], list[float]]) -> Paired:
    """By the rounds so far."""
    return compare_paired(*(Latency(tuple(each)) for each in times))
