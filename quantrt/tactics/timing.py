# SPDX-License-Identifier: Apache-2.0
"""Latencies of several candidates, measured in turns so that drift of the machine hits all of them alike.

A round gives every candidate one turn, in random order. A turn is one untimed run, which brings its
weights back into the caches and wakes its threads, then timed runs, of a candidate the same number in all
turns. Those of the previous one may be waited for before it, until they are asleep. Two are compared by
their ratios within rounds, never by separate medians. Runs are timed by the host's clock, or by a device that
has one of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from quantrt.config import BenchConfig
from quantrt.errors import UsageError
from quantrt.ir.collector import without_collector
from quantrt.tactics.latency import CONFIDENCE_RATIO, Latency, Paired, compare_paired

__all__ = ["Latency", "Paired", "TimesItself", "compare_paired", "time_interleaved"]

TURN_MS = 20.0
"""Timed part of a turn, at least: long enough that a waking thread pool is a small part of it."""

SEARCH_TURN_MS = 2.0
"""The same in a search, where the threads of the previous turn may be waited for: how far apart rounds are
counts for more than how long their turns are."""

SEARCH_TURN_RUNS, BRIEF_TURN_MS = 16, 1.0
"""Of what is so fast that so many runs take less, a turn in a search is these, or so long at least; the
seconds asked for are as much less, for as many rounds."""

OWN_TURN_MS = 5.0
"""The same where all runs time themselves: there is no thread to be woken."""

MIN_TURN_RUNS = 3
"""Of runs that the host times; one that times itself is enough, for nothing else runs beside it."""

MAX_TURN_RUNS = 256
MIN_WARMUP_RUNS = 2

SLOW_RUN_MS = 50.0
"""When the fastest candidate takes this long, one run is a turn. A run that times itself and takes this long
needs no untimed one before it: that its data lay in no cache is a small part of it."""

MIN_ROUNDS = 8
"""With fewer the interval of a ratio is infinite: a slow model's candidates could never be told apart."""

EARLY_RATIO = 1 / 8
"""Of the seconds asked for, after which a search may be over where nothing is in doubt: then one of two is
the faster in all of 12 rounds or so."""

SOON_RATIO = 1 / 16
"""The same where that one is the faster in all rounds by WIDE_RATIO, for which MIN_ROUNDS are enough. These
looks come beside those behind EARLY_RATIO."""

EARLY_CONFIDENCE_RATIO = 0.999
"""Of the interval until all of the seconds asked for are spent: the more looks, the surer each has to be."""

WIDE_RATIO = 1.1
"""What is slower by this in all rounds but those that CONFIDENCE_RATIO allows is slower for certain, however
often that was looked at."""

REGRET_RATIO = 0.03
"""A search takes a candidate that is likely no more than this slower than any other it could take: to tell
which of two in codes is faster by less, or whether codes are by less than floats, would cost more than it
gains."""

REGRET_CONFIDENCE_RATIO = 0.95
"""Of the interval by which that is likely."""

SETTLED_RATIO = 1 / 3
"""Of the seconds asked for, after which that is not asked any more."""

MUCH_RATIO = 0.1
"""Of the time of floats: what seems to gain so much is worth being sure of."""

_RECHECK_GROWTH = 1.5  # further rounds between two looks, as a factor, so that looks stay few

LEAVING_ROUNDS = 5
"""After which candidates are first asked to leave."""

Clock = Callable[[], int]

Leaving = Callable[[Mapping[str, Latency]], Collection[str]]
"""Which candidates of a search, by the rounds so far, need no more of them."""


@runtime_checkable
class TimesItself(Protocol):
    """A run on a device with a clock, in whose times nothing of the host is."""

    def __call__(self) -> object:
        """One run, until its outputs are there."""

    def times_ms(self, count: int) -> list[float]:
        """Milliseconds of each of `count` runs that follow each other."""


def time_interleaved(
    runs: Mapping[str, Callable[[], object]],
    config: BenchConfig,
    on_progress: Callable[[int, int | None], None] | None = None,
    *,
    seed: int = 0,
    min_rounds: int = MIN_ROUNDS,
    floats: Collection[str] | None = None,
    halves: Collection[str] = (),
    leaving: Leaving | None = None,
    before_turn: Callable[[], object] = lambda: None,
    most_rounds: float = math.inf,
    clock: Clock = time.perf_counter_ns,
) -> dict[str, Latency]:
    """Time every candidate in turns, each until `config.duration_s` and `config.min_runs` are reached.

    Goes on, up to `config.max_duration_s` per candidate, while the fastest cannot be told from another. No
    fewer than `min_rounds` rounds are timed, however long they take.

    Args:
        runs: one run of each candidate, by name.
        on_progress: called after each round with timed milliseconds, done and expected, per candidate.
        seed: of the order within rounds.
        min_rounds: MIN_ROUNDS where ratios will be taken; fewer do for a heat.
        floats: where the fastest is searched for, and nobody's time is wanted as such: names of those that
            it has to be told from for certain, or after SETTLED_RATIO of the seconds gain likely less than
            REGRET_RATIO beside; of two others that is enough before, and then nothing. It ends after
            EARLY_RATIO of them where all that is sure, at EARLY_CONFIDENCE_RATIO, or after SOON_RATIO by
            WIDE_RATIO, and goes on beyond them for floats alone.
        halves: names of 16-bit floats, which codes have to be told from too, where they gain.
        leaving: asked ever more rarely, for the first time after LEAVING_ROUNDS.
        before_turn: what is waited for in front of every turn.
        most_rounds: after which it is over, unless what seems to gain MUCH_RATIO beside floats is in doubt.
        clock: nanoseconds, never going back.

    Returns:
        Latencies by name, all with the same number of rounds; of those that stayed to the end.
    """
    if not runs:
        raise UsageError("nothing to time: no candidates")
    has_clock = all(isinstance(run, TimesItself) for run in runs.values())
    with without_collector():
        least_ms = _warm_up(runs, config, clock)
        is_search = floats is not None
        turn_ms = OWN_TURN_MS if has_clock else _host_turn_ms(min(least_ms.values()), is_search=is_search)
        return _time_rounds(
            runs,
            _for_turns(config, turn_ms) if is_search else config,
            on_progress,
            turn_runs=_turn_runs(least_ms, turn_ms, has_clock=has_clock, is_search=is_search),
            slow={name for name, ms in least_ms.items() if ms >= SLOW_RUN_MS},
            min_rounds=min_rounds,
            floats=floats,
            halves=halves,
            leaving=leaving,
            before_turn=before_turn,
            most_rounds=most_rounds,
            order=np.random.default_rng(seed),
            clock=clock,
        )


def _time_rounds(
    runs: Mapping[str, Callable[[], object]],
    config: BenchConfig,
    on_progress: Callable[[int, int | None], None] | None,
    *,
    turn_runs: Mapping[str, int],
    slow: Collection[str],
    min_rounds: int,
    floats: Collection[str] | None,
    halves: Collection[str],
    leaving: Leaving | None,
    before_turn: Callable[[], object],
    most_rounds: float,
    order: np.random.Generator,
    clock: Clock,
) -> dict[str, Latency]:
    samples: dict[str, list[float]] = {name: [] for name in runs}
    spent_ms = dict.fromkeys(runs, 0.0)
    names = list(runs)
    least_s = config.duration_s * (1.0 if floats is None else SOON_RATIO)
    rounds = 0
    next_look = dict.fromkeys((SOON_RATIO, EARLY_RATIO, 1.0), 0.0)  # by what they are behind
    next_leaving = math.inf if leaving is None else float(LEAVING_ROUNDS)
    while True:
        for index in order.permutation(len(names)):
            name = names[index]
            before_turn()
            turn = _turn(runs[name], turn_runs[name], clock, is_slow=name in slow)
            samples[name] += turn
            spent_ms[name] += math.fsum(turn)
        rounds += 1
        if leaving is not None and rounds >= next_leaving:
            for name in leaving(_latencies(samples, turn_runs)):
                names.remove(name)
                del samples[name], spent_ms[name]
            next_leaving = rounds * _RECHECK_GROWTH
        least_ms, most_ms = min(spent_ms.values()), max(spent_ms.values())
        if on_progress is not None:
            on_progress(int(least_ms), int(max(config.duration_s * 1e3, least_ms)))
        if most_ms >= config.max_duration_s * 1e3 and rounds >= min_rounds:
            break
        if rounds >= most_rounds:
            if not _may_gain_much(_latencies(samples, turn_runs), floats or ()):
                break
            most_rounds = rounds * _RECHECK_GROWTH
        behind = max((r for r in next_look if least_ms >= r * config.duration_s * 1e3), default=0.0)
        has_runs = rounds >= min_rounds and rounds * min(turn_runs[name] for name in names) >= config.min_runs
        if least_ms < least_s * 1e3 or not has_runs or rounds < next_look[behind]:
            continue
        is_settled = least_ms >= SETTLED_RATIO * config.duration_s * 1e3
        found = _latencies(samples, turn_runs)
        if _is_decided(found, floats, halves, is_early=behind < 1.0, is_settled=is_settled):
            break
        next_look[behind] = rounds * _RECHECK_GROWTH
    return _latencies(samples, turn_runs)


def _latencies(samples: Mapping[str, list[float]], turn_runs: Mapping[str, int]) -> dict[str, Latency]:
    return {name: Latency(tuple(times), turn_runs[name]) for name, times in samples.items()}


def _warm_up(runs: Mapping[str, Callable[[], object]], config: BenchConfig, clock: Clock) -> dict[str, float]:
    """Run each candidate untimed for `warmup_s`; the milliseconds of its fastest run."""
    least_ms: dict[str, float] = {}
    for name, run in runs.items():
        start, count = clock(), 0
        least_ms[name] = math.inf
        while count < MIN_WARMUP_RUNS or clock() - start < config.warmup_s * 1e9:
            (elapsed_ms,) = _timed(run, 1, clock)
            least_ms[name] = min(least_ms[name], elapsed_ms)
            count += 1
    return least_ms


def _host_turn_ms(fastest_ms: float, *, is_search: bool) -> float:
    """How long a turn is by the host's clock, at least."""
    if not is_search:
        return TURN_MS
    return min(max(SEARCH_TURN_RUNS * fastest_ms, BRIEF_TURN_MS), SEARCH_TURN_MS)


def _for_turns(config: BenchConfig, turn_ms: float) -> BenchConfig:
    """The seconds asked for, for as many rounds of turns that are shorter than usual in a search."""
    return replace(config, duration_s=config.duration_s * min(turn_ms / SEARCH_TURN_MS, 1.0))


def _turn_runs(
    least_ms: Mapping[str, float], turn_ms: float, *, has_clock: bool, is_search: bool
) -> dict[str, int]:
    """The number of timed runs of every turn.

    As many for all as the fastest needs, so that every figure is of as many runs; in a search as many as each
    needs: a candidate that takes ten times as long would take ten times as much of the search.
    """
    fastest_ms = min(least_ms.values())
    if fastest_ms >= SLOW_RUN_MS:
        return dict.fromkeys(least_ms, 1)
    least_runs = 1 if has_clock else MIN_TURN_RUNS
    return {
        name: min(
            max(math.ceil(turn_ms / max(ms if is_search else fastest_ms, 1e-6)), least_runs), MAX_TURN_RUNS
        )
        for name, ms in least_ms.items()
    }


def _turn(run: Callable[[], object], turn_runs: int, clock: Clock, *, is_slow: bool) -> list[float]:
    if not (is_slow and isinstance(run, TimesItself)):
        run()
    return _timed(run, turn_runs, clock)


def _timed(run: Callable[[], object], count: int, clock: Clock) -> list[float]:
    """Milliseconds of each of `count` runs."""
    if isinstance(run, TimesItself):
        return run.times_ms(count)
    times = []
    for _ in range(count):
        start = clock()
        run()
        times.append((clock() - start) / 1e6)
    return times


def _is_decided(
    latencies: Mapping[str, Latency],
    floats: Collection[str] | None,
    halves: Collection[str],
    *,
    is_early: bool,
    is_settled: bool,
) -> bool:
    """Whether the candidate with the lowest median is told from each other, or known to be equal to it.

    In a search it is enough that the regret of what would be taken is small, which are floats where codes are
    not surely faster. Beside `floats` that is asked once it is settled, and before of floats that seem the
    fastest, for certain; between two others it is asked before, and then no more. Before that it is not over
    while the second that seems faster than floats is not surely so: it may be shipped where the first is
    outside the budget.
    """
    confidence = EARLY_CONFIDENCE_RATIO if is_early else CONFIDENCE_RATIO
    if is_early and not is_settled and not _are_others_told(latencies, floats or ()):
        return False
    first, *others = sorted(latencies, key=lambda name: latencies[name].median_ms)
    for other in others:
        pair = compare_paired(latencies[first], latencies[other], confidence=confidence)
        if pair.is_decided or _is_wide(latencies[first], latencies[other]):
            continue
        if floats is None:
            return False
        sure, is_taken = REGRET_CONFIDENCE_RATIO, False
        if first in floats:
            is_over, is_taken = not is_early, True
            sure = sure if is_settled else confidence
        elif other in floats:
            is_over = False
            if not is_settled:
                return False
        else:
            is_over, is_taken = is_settled, first in halves or other not in halves
        pair = compare_paired(latencies[first], latencies[other], confidence=sure)
        if not is_over and _regret(pair, is_taken=is_taken) > REGRET_RATIO:
            return False
    return True


def _is_wide(faster: Latency, slower: Latency) -> bool:
    """Whether one is ahead by so much that fewer rounds tell."""
    return compare_paired(slower, faster).lo > WIDE_RATIO


def _regret(pair: Paired, *, is_taken: bool) -> float:
    """What the first may lose against the other; or the other, which is taken where they are not told."""
    return (pair.hi if is_taken else 1.0 / max(pair.lo, 1e-9)) - 1.0


def _are_others_told(latencies: Mapping[str, Latency], floats: Collection[str]) -> bool:
    """Whether the two that seem the fastest, by more than REGRET_RATIO beside `floats`, surely are so."""
    timed = {name: latencies[name] for name in latencies if name in floats}
    if not timed:
        return True
    yardstick = min(timed.values(), key=lambda latency: latency.median_ms)
    others = sorted(
        (one for name, one in latencies.items() if name not in timed), key=lambda one: one.median_ms
    )
    pairs = (compare_paired(one, yardstick) for one in others[:2])
    return all(pair.verdict == "faster" or pair.ratio >= 1.0 - REGRET_RATIO for pair in pairs)


def _may_gain_much(latencies: Mapping[str, Latency], floats: Collection[str]) -> bool:
    """Whether the fastest seems faster than the fastest of `floats` by MUCH_RATIO, and is not surely so."""
    timed = [latencies[name] for name in latencies if name in floats]
    others = [latencies[name] for name in latencies if name not in floats]
    if not timed or not others:
        return False
    first, yardstick = (min(part, key=lambda latency: latency.median_ms) for part in (others, timed))
    pair = compare_paired(first, yardstick)
    return pair.ratio < 1.0 - MUCH_RATIO and pair.verdict != "faster"
