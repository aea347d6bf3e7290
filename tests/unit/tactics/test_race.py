# SPDX-License-Identifier: Apache-2.0
"""Who is timed to the end, by a clock that runs only while somebody runs."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

from quantrt.config import BenchConfig
from quantrt.tactics.latency import Latency, compare_paired
from quantrt.tactics.race import FINALISTS, MOST_ROUNDS, _is_surely_slower
from quantrt.tactics.race import race as race_by_clock
from quantrt.tactics.timing import LEAVING_ROUNDS

CONFIG = BenchConfig(duration_s=0.4, max_duration_s=0.4, warmup_s=0.0, min_runs=3)

TIMES_MS = {"a fp32": 2.0, "b fp32": 1.5, "a int8": 0.2, "b int8": 0.3, "c int8": 0.4, "d int8": 3.0}


@dataclass
class MadeUpClock:
    """Nanoseconds that runs have taken."""

    now_ns: int = 0

    def __call__(self) -> int:
        return self.now_ns

    def run(self, ms: float) -> None:
        self.now_ns += round(ms * 1e6)


CLOCK = MadeUpClock()
race = partial(race_by_clock, clock=CLOCK)


def ratios(each: list[float]) -> tuple[Latency, Latency]:
    """Two that differ by these ratios, round by round."""
    return Latency(tuple(each)), Latency((1.0,) * len(each))


def runs(names, calls: Counter):
    def run(name: str):
        calls[name] += 1
        CLOCK.run(TIMES_MS[name])

    return {name: lambda name=name: run(name) for name in names}


@pytest.mark.parametrize("names", [["a fp32"], ["a fp32", "a int8"], ["b fp32", "a int8", "b int8"]])
def test_few_candidates_are_all_finalists(names: list[str]):
    latencies = race(runs(names, Counter()), {"a fp32", "b fp32"}, CONFIG)
    assert set(latencies) == set(names)
    assert len({len(latency.round_medians_ms()) for latency in latencies.values()}) == 1


def test_who_has_lost_leaves_and_the_others_go_on():
    calls: Counter = Counter()
    times = {"a fp32": 1.0, "b fp32": 4.0, "a int8": 1.0, "c int8": 4.0}
    spread = np.random.default_rng(2).normal(1.0, 0.1, 100_000)

    def run(name: str):
        calls[name] += 1
        CLOCK.run(times[name] * abs(spread[calls["a fp32"]]))

    config = replace(CONFIG, duration_s=1.0, max_duration_s=1.0)
    left = {}
    latencies = race(
        {name: lambda name=name: run(name) for name in times},
        {"a fp32", "b fp32"},
        config,
        on_left=lambda name, latency: left.update({name: latency}),
    )
    assert set(latencies) == {"a fp32", "a int8"} and set(left) == {"b fp32", "c int8"}
    for name, yardstick in (("b fp32", "a fp32"), ("c int8", "a int8")):
        pair = compare_paired(left[name], latencies[yardstick].first(left[name].rounds))
        assert pair.rounds >= LEAVING_ROUNDS
        assert pair.ratio == pytest.approx(4.0, rel=0.1)
    rounds = len(latencies["a fp32"].round_medians_ms())
    assert rounds > 3 * LEAVING_ROUNDS
    assert len(latencies["a int8"].round_medians_ms()) == rounds
    assert calls["b fp32"] < calls["a fp32"] / 4 and calls["c int8"] < calls["a int8"] / 4


def test_an_fp32_that_is_nearly_as_fast_stays_a_yardstick():
    """Until it is surely slower, which 5 % are not in a few rounds."""
    found = [ratios([1.05, 1.04, 0.99, 1.06, 1.05]), ratios([1.3, 1.4, 1.26, 1.5, 1.3]), ratios([1.05] * 11)]
    assert [_is_surely_slower(slow, fast) for slow, fast in found] == [False, True, True]
    unlucky = [ratios([1.3] * 7 + [0.7]), ratios([1.3] * 6 + [0.7]), ratios([1.3] * 10 + [0.7] * 2)]
    assert [_is_surely_slower(slow, fast) for slow, fast in unlucky] == [True, False, True]
    hopeless = [ratios([1.6] * 4 + [1.45]), ratios([1.6] * 5)]
    assert [_is_surely_slower(slow, fast, 1.5) for slow, fast in hopeless] == [False, True]


def test_without_fp32_beside_them_candidates_are_told_from_each_other():
    names = {"a int8": "", "b int8": ""}
    assert set(race(runs(names, Counter()), set(), CONFIG)) == set(names)


def test_of_many_the_fastest_and_the_fastest_float_one_are_finalists():
    calls: Counter = Counter()
    latencies = race(runs(TIMES_MS, calls), {"a fp32", "b fp32"}, CONFIG)
    assert set(latencies) == {"b fp32", "a int8", "b int8", "c int8"}
    assert len(latencies) == FINALISTS + 1
    assert calls["d int8"] > 0 and calls["a fp32"] > 0  # the heat gave each its turn


def test_who_is_slower_than_the_third_leaves_though_it_beats_fp32():
    times = {"fp32": 2.0, "a": 0.2, "b": 0.3, "c": 0.4, "d": 0.6}
    left: list[str] = []
    latencies = race(
        {name: (lambda ms=ms: CLOCK.run(ms)) for name, ms in times.items()},
        {"fp32"},
        CONFIG,
        on_left=lambda name, latency: left.append(name),
    )
    assert set(latencies) == {"fp32", "a", "b", "c"} and left == ["d"]


def test_what_is_much_slower_than_the_float_baseline_is_no_finalist():
    names = {"b fp32": "", "a int8": "", "d int8": "", "c int8": ""}
    assert set(race(runs(names, Counter()), {"b fp32"}, CONFIG)) == {"b fp32", "a int8", "c int8"}


def test_the_fastest_in_codes_is_a_finalist_however_slow():
    names = {"a fp32": "", "d int8": "", "c fp32": "", "e fp32": ""}
    times = {"a fp32": 0.4, "c fp32": 0.9, "e fp32": 0.8, "d int8": 3.0}
    latencies = race(
        {name: (lambda name=name: CLOCK.run(times[name])) for name in names},
        {"a fp32", "c fp32", "e fp32"},
        CONFIG,
    )
    assert set(latencies) == {"a fp32", "d int8"}


def test_the_float_baseline_is_a_finalist_even_when_it_is_the_slowest():
    names = {"d int8": "fp32", "a int8": "", "b int8": "", "c int8": ""}
    latencies = race(runs(names, Counter()), {"d int8"}, CONFIG)
    assert "d int8" in latencies


def test_progress_is_that_of_the_final():
    seen = []
    race(runs(TIMES_MS, Counter()), {"a fp32", "b fp32"}, CONFIG, lambda *progress: seen.append(progress))
    done = [done for done, _ in seen]
    assert seen and done == sorted(done)


def test_whose_time_is_wanted_stays_however_slow():
    names = {"b fp32": "", "a int8": "", "d int8": "", "c int8": ""}
    latencies = race(runs(names, Counter()), {"b fp32"}, CONFIG, staying={"d int8"})
    assert set(latencies) == set(names)
    assert len({len(latency.round_medians_ms()) for latency in latencies.values()}) == 1


def test_what_cannot_be_told_is_over_after_so_many_rounds():
    """The one is now faster and now slower by half than FP32, a turn each, which is never sure."""
    turns = np.random.default_rng(4).permuted([0.67, 1.5] * 1000)
    count: Counter = Counter()

    def run(name: str):
        count[name] += 1
        CLOCK.run(0.8 * (1.0 if name == "fp32" else turns[count[name] // 4]))  # one untimed and three timed

    config = replace(CONFIG, duration_s=3.0, max_duration_s=60.0)
    latencies = race({name: lambda name=name: run(name) for name in ("fp32", "int8")}, {"fp32"}, config)
    assert len(latencies["fp32"].round_medians_ms()) == MOST_ROUNDS
