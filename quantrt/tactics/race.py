# SPDX-License-Identifier: Apache-2.0
"""Time many candidates together until the fastest is known; those that have lost leave on the way."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from quantrt.config import BenchConfig
from quantrt.tactics.idle_threads import wait_for_sleep
from quantrt.tactics.power_limit import LEAD_MS, Led, slows_down
from quantrt.tactics.timing import (
    EARLY_CONFIDENCE_RATIO,
    Clock,
    Latency,
    TimesItself,
    compare_paired,
    time_interleaved,
)

__all__ = ["race"]

log = logging.getLogger(__name__)

FINALISTS = 3
"""Besides the fastest FP32 candidate; one more than can win, for when the first is outside the budget."""

HEAT_RATIO = 0.1
"""Part of the timed seconds that each candidate gets in the first heat on a GPU."""

HOPELESS_RATIO = 1.5
"""Of the fastest FP32 candidate's time in a heat: what takes longer is not shipped however exact it is."""

LOST_RATIO = 1.1
"""The same of what surely takes longer."""

WIDE_RATIO = 1.25
WIDE_CONFIDENCE_RATIO = 0.92
"""What is slower by this is slower where an interval of this confidence says so: in all of 5 rounds, in all
but one of 8, in all but two of 12."""

MOST_ROUNDS = 24
"""By the host's clock: what seems to gain little, and cannot be told in so many, is not taken for floats."""

WARM_S = 0.2
"""Of warming up in a heat, and again behind one."""

LED_S, LED_MAX_S = 0.04, 0.12
"""Of timed seconds where each turn is led, which takes forty times as long: 8 rounds, up to 24 where two are
as fast."""

SEARCH_WARM_S = 0.005
"""The same on the host's clock, where a turn has an untimed run, and medians of rounds are compared: it is
enough to know about how long a run takes."""


def race(
    runs: Mapping[str, Callable[[], object]],
    floats: set[str],
    config: BenchConfig,
    on_progress: Callable[[int, int | None], None] | None = None,
    *,
    halves: Collection[str] = (),
    staying: Collection[str] = (),
    on_left: Callable[[str, Latency], None] = lambda name, latency: None,
    clock: Clock = time.perf_counter_ns,
) -> dict[str, Latency]:
    """Latencies of the finalists, all from the same rounds.

    Args:
        runs: one run of each candidate, by name.
        floats: names of the FP32 candidates; the fastest of them is always a finalist.
        halves: names of those in 16-bit floats, which codes have to be told from too.
        staying: names of those whose time is wanted, however slow they are; a heat of many does not ask.
        on_left: called with each that leaves on the way, and its rounds.
        clock: nanoseconds, never going back; of runs that do not time themselves.
    """
    timed = {name: run for name, run in runs.items() if isinstance(run, TimesItself)}
    if len(timed) == len(runs):
        return _heat_and_final(timed, floats, config, on_progress)
    warm = replace(config, warmup_s=min(config.warmup_s, SEARCH_WARM_S))

    def leaving(latencies: Mapping[str, Latency]) -> list[str]:
        lost = [name for name in _lost(latencies, floats) if name not in staying]
        for name in lost:
            on_left(name, latencies[name])
        return lost

    return time_interleaved(
        runs,
        warm,
        on_progress,
        floats=floats,
        halves=halves,
        leaving=leaving,
        before_turn=wait_for_sleep if len(runs) > 1 else lambda: None,
        most_rounds=MOST_ROUNDS,
        clock=clock,
    )


def _lost(latencies: Mapping[str, Latency], floats: Collection[str]) -> list[str]:
    """Who cannot be the yardstick, nor be shipped.

    FP32 candidates that are surely slower than the fastest of them; of the others, those that are surely
    hopeless beside it, or slower than as many as there may be finalists. The fastest of the others stays.
    """
    order = sorted(latencies, key=lambda name: latencies[name].median_ms)
    timed, others = ([name for name in order if (name in floats) == is_float] for is_float in (True, False))
    lost = [name for name in timed[1:] if _is_surely_slower(latencies[name], latencies[timed[0]])]
    for place, name in enumerate(others[1:], 1):
        hopeless = timed and _is_surely_slower(latencies[name], latencies[timed[0]], LOST_RATIO)
        if hopeless or (
            place >= FINALISTS and _is_surely_slower(latencies[name], latencies[others[FINALISTS - 1]])
        ):
            lost.append(name)
    return lost


def _is_surely_slower(latency: Latency, other: Latency, by_ratio: float = 1.0) -> bool:
    """Whether the first takes more than `by_ratio` of the other's time."""
    if compare_paired(latency, other, confidence=EARLY_CONFIDENCE_RATIO).lo > by_ratio:
        return True
    wide = compare_paired(latency, other, confidence=WIDE_CONFIDENCE_RATIO)
    return wide.lo > max(by_ratio, WIDE_RATIO)


def _heat_and_final(
    runs: Mapping[str, TimesItself],
    floats: set[str],
    config: BenchConfig,
    on_progress: Callable[[int, int | None], None] | None,
) -> dict[str, Latency]:
    """What times itself on a device: for a thirtieth of the seconds already, whose rounds are few."""
    finalists, final = runs, config
    if len(runs) > FINALISTS:
        final = replace(config, warmup_s=min(config.warmup_s, WARM_S))
        finalists = {name: runs[name] for name in _best_of_heat(runs, floats, final)}
    slowed = [name for name, run in finalists.items() if slows_down(run)]
    if not slowed:
        return time_interleaved(finalists, final, on_progress)
    log.info("the GPU lowers its clock under %s: every turn is led by %g ms of it", slowed, LEAD_MS)
    few = replace(final, warmup_s=0.0, duration_s=LED_S, max_duration_s=LED_MAX_S, min_runs=1)
    return time_interleaved({name: Led(run) for name, run in finalists.items()}, few, on_progress)


def _best_of_heat(runs: Mapping[str, TimesItself], floats: Collection[str], config: BenchConfig) -> list[str]:
    """The fastest FP32 candidate, and who is not hopeless beside it."""
    brief = config.duration_s * HEAT_RATIO
    heat_config = replace(config, duration_s=brief, max_duration_s=brief, min_runs=5)
    heat = time_interleaved(runs, heat_config, None, min_rounds=1)
    order = sorted(heat, key=lambda name: heat[name].median_ms)
    baseline = next(name for name in order if name in floats)
    limit_ms = HOPELESS_RATIO * heat[baseline].median_ms
    others = [name for name in order if name not in floats][:FINALISTS]
    return [baseline, *(name for name in others if name == others[0] or heat[name].median_ms <= limit_ms)]
