# SPDX-License-Identifier: Apache-2.0
"""Timing, on a clock that only moves when a run says so: every expectation is exact."""

import gc
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from quantrt.config import BenchConfig
from quantrt.errors import UsageError
from quantrt.tactics.latency import EQUAL_RATIO
from quantrt.tactics.timing import (
    EARLY_CONFIDENCE_RATIO,
    MAX_TURN_RUNS,
    MIN_ROUNDS,
    MIN_TURN_RUNS,
    REGRET_CONFIDENCE_RATIO,
    REGRET_RATIO,
    SEARCH_TURN_MS,
    SETTLED_RATIO,
    SOON_RATIO,
    TURN_MS,
    WIDE_RATIO,
    Latency,
    Paired,
    compare_paired,
    time_interleaved,
)


class Machine:
    """A clock, and runs that move it by what `cost_ms(name, n)` says of the n-th run of a candidate."""

    def __init__(self, cost_ms: Callable[[str, int], float]) -> None:
        self.now_ns = 0
        self.log: list[str] = []
        self._counts: Counter[str] = Counter()
        self._cost_ms = cost_ms

    def clock(self) -> int:
        return self.now_ns

    def run(self, name: str) -> Callable[[], None]:
        def once() -> None:
            self.now_ns += round(1e6 * self._cost_ms(name, self._counts[name]))
            self._counts[name] += 1
            self.log.append(name)

        return once


def timed(
    cost_ms: Callable[[str, int], float],
    names: str,
    *,
    min_rounds: int = 8,
    floats: str | None = None,
    halves: str = "",
    **options,
) -> tuple[dict[str, Latency], Machine]:
    machine = Machine(cost_ms)
    config = BenchConfig(
        **{"warmup_s": 0.0, "duration_s": 0.5, "min_runs": 1, "max_duration_s": 5.0, **options}
    )
    runs = {name: machine.run(name) for name in names}
    found = time_interleaved(
        runs, config, min_rounds=min_rounds, floats=floats, halves=halves, clock=machine.clock
    )
    return found, machine


def turns(log: list[str]) -> list[str]:
    """The candidate of each unbroken stretch of runs."""
    return [name for index, name in enumerate(log) if index == 0 or log[index - 1] != name]


def test_each_run_is_measured_exactly():
    latencies, _ = timed(lambda name, n: {"a": 7.0, "b": 11.0}[name], "ab")
    assert set(latencies["a"].samples_ms) == {7.0}
    assert set(latencies["b"].samples_ms) == {11.0}


def test_every_round_gives_everyone_one_turn_in_changing_order():
    latencies, machine = timed(lambda name, n: 10.0, "abc")
    warmup, turn = 2 * 3, latencies["a"].turn_runs + 1  # the first run of a turn is not timed
    log = machine.log[warmup:]
    stretches = [log[start : start + turn] for start in range(0, len(log), turn)]
    assert all(len(set(stretch)) == 1 for stretch in stretches)
    rounds = ["".join(stretch[0] for stretch in stretches[i : i + 3]) for i in range(0, len(stretches), 3)]
    assert {"".join(sorted(names)) for names in rounds} == {"abc"}
    assert len(set(rounds)) > 3
    assert {len(latency.samples_ms) for latency in latencies.values()} == {len(rounds) * (turn - 1)}


def test_the_first_run_of_a_turn_is_not_counted():
    runs_in_row = {"last": "", "count": 0}

    def cost_ms(name: str, n: int) -> float:
        runs_in_row["count"] = runs_in_row["count"] + 1 if runs_in_row["last"] == name else 0
        runs_in_row["last"] = name
        return 50.0 if runs_in_row["count"] == 0 else 10.0

    latencies, machine = timed(cost_ms, "ab")
    repeated = [latency for latency in latencies.values() if set(latency.samples_ms) == {10.0}]
    # Two turns of the same candidate may meet at the border of two rounds; then none of its runs is cold.
    assert len(repeated) == 2
    assert machine.now_ns > 0


def test_drift_hits_all_alike():
    latencies, _ = timed(lambda name, n: (1.0 + n / 40) * {"a": 8.0, "b": 10.0}[name], "ab")
    pair = compare_paired(latencies["a"], latencies["b"])
    assert pair.ratio == pytest.approx(0.8, abs=0.02)
    assert pair.verdict == "faster"


@pytest.mark.parametrize(
    ("run_ms", "turn_runs"),
    [(0.001, MAX_TURN_RUNS), (1.0, TURN_MS), (5.0, TURN_MS / 5), (40.0, MIN_TURN_RUNS), (400.0, 1)],
)
def test_turns_are_long_enough_and_not_too_long(run_ms: float, turn_runs: float):
    latencies, _ = timed(lambda name, n: run_ms, "ab", duration_s=0.05, max_duration_s=0.1)
    assert latencies["a"].turn_runs == turn_runs


def test_duration_and_runs_are_both_reached():
    for duration_s, min_runs in ((1.0, 1), (0.01, 80)):
        latencies, _ = timed(lambda name, n: 10.0, "ab", duration_s=duration_s, min_runs=min_runs)
        for latency in latencies.values():
            assert latency.total_ms >= duration_s * 1e3
            assert len(latency.samples_ms) >= min_runs


def test_equal_candidates_end_at_the_duration():
    latencies, _ = timed(lambda name, n: 10.0, "ab", duration_s=1.0, max_duration_s=50.0)
    assert latencies["a"].total_ms < 1.5e3


@pytest.mark.parametrize("floats", [None, "", "b"])
def test_a_search_is_over_early_where_the_fastest_is_clear(floats: str | None):
    latencies, _ = timed(
        lambda name, n: {"a": 10.0, "b": 14.0, "c": 20.0}[name], "abc", duration_s=3.0, floats=floats
    )
    assert (latencies["a"].total_ms < 1e3) == (floats is not None)
    assert latencies["a"].total_ms >= 3e3 * SOON_RATIO
    assert compare_paired(latencies["a"], latencies["b"]).verdict == "faster"


@pytest.mark.parametrize(("float_ms", "rounds"), [(10.5, 12), (10.9, 12), (11.1, 8), (14.0, 8)])
def test_floats_are_told_soon_by_a_wide_difference_alone(float_ms: float, rounds: int):
    """Turns of 30 ms in 3 s: eight are behind a sixteenth of the time, and twelve are looked at next."""
    latencies, _ = timed(lambda name, n: {"a": 10.0, "b": float_ms}[name], "ab", duration_s=3.0, floats="b")
    assert latencies["a"].turn_runs == 3
    assert len(latencies["a"].round_medians_ms()) == rounds
    assert compare_paired(latencies["a"], latencies["b"]).verdict == "faster"


@pytest.mark.parametrize("first_ratio", [1.09, 1.15])
def test_a_search_ends_soon_only_where_all_rounds_are_wide_apart(first_ratio: float):
    """In the first round of eight the floats b are so much slower than a, and by far more in the others."""

    def cost_ms(name: str, n: int) -> float:
        return 10.0 if name == "a" else 10.0 * first_ratio if n <= 5 else 14.0

    latencies, _ = timed(cost_ms, "ab", duration_s=3.0, floats="b")
    rounds = len(latencies["a"].round_medians_ms())
    assert (rounds == 8) == (first_ratio > WIDE_RATIO)


def test_codes_that_are_as_fast_as_floats_rarely_end_a_search_soon():
    """Of 200 pairs whose rounds spread by a fifth, none is called different by fewer rounds than twelve."""
    soon = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)

        def cost_ms(name: str, n: int, rng: np.random.Generator = rng) -> float:
            return 40.0 * math.exp(float(rng.normal(0.0, 0.2)))

        latencies, _ = timed(cost_ms, "ab", duration_s=1.0, floats="a")
        rounds = len(latencies["a"].round_medians_ms())
        soon += rounds < 12 and compare_paired(latencies["a"], latencies["b"]).verdict != "same"
    assert soon == 0


def test_in_a_search_slow_candidates_get_fewer_runs_and_no_more_time():
    times = {"a": 0.125, "b": 0.75}
    latencies, _ = timed(lambda name, n: times[name], "ab", duration_s=3.0, floats="b")
    assert latencies["a"].turn_runs == SEARCH_TURN_MS / 0.125
    assert latencies["b"].turn_runs == MIN_TURN_RUNS
    assert latencies["b"].total_ms < 2 * latencies["a"].total_ms
    assert len(latencies["a"].round_medians_ms()) == len(latencies["b"].round_medians_ms())
    assert compare_paired(latencies["a"], latencies["b"]).ratio == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("fast_ms", "turn_ms"), [(0.125, 2.0), (0.09375, 1.5), (0.0625, 1.0), (0.03125, 1.0)]
)
def test_a_search_of_what_is_very_fast_has_as_many_rounds_in_shorter_turns(fast_ms: float, turn_ms: float):
    times = {"a": fast_ms, "b": 1.05 * fast_ms}
    latencies, _ = timed(lambda name, n: times[name], "ab", duration_s=3.0, floats="b")
    assert latencies["a"].turn_runs == turn_ms / fast_ms
    usual, _ = timed(lambda name, n: 2 * times[name] * 0.125 / fast_ms, "ab", duration_s=3.0, floats="b")
    assert latencies["a"].rounds == usual["a"].rounds


def test_a_search_goes_on_where_the_fastest_is_not_clear():
    spread = np.random.default_rng(5).normal(1.0, 0.2, 100_000)
    latencies, _ = timed(
        lambda name, n: 10.0 * float(spread[2 * n + (name == "a")]), "ab", duration_s=3.0, floats="a"
    )
    assert latencies["a"].total_ms >= 3e3


@pytest.mark.parametrize(("floats", "ends"), [("", True), ("a", True), ("b", False)])
def test_codes_are_told_from_floats_and_not_from_other_codes_that_are_as_fast(floats: str, ends: bool):
    """a is 1.5 % faster than b, with a spread that hides it for long."""
    spread = np.random.default_rng(6).normal(1.0, 0.08, 100_000)

    def cost_ms(name: str, n: int) -> float:
        return {"a": 9.85, "b": 10.0}[name] * float(spread[2 * n + (name == "a")])

    latencies, _ = timed(cost_ms, "ab", duration_s=3.0, floats=floats)
    pair = compare_paired(latencies["a"], latencies["b"], confidence=EARLY_CONFIDENCE_RATIO)
    assert not pair.is_decided or not ends
    assert (latencies["a"].total_ms < 3e3) == ends


@pytest.mark.parametrize(("floats", "ends"), [("", True), ("b", False)])
def test_codes_beside_codes_are_timed_for_no_more_than_the_seconds_asked_for(floats: str, ends: bool):
    """a is 1 % faster than b, with a spread that hides it for minutes."""
    spread = np.random.default_rng(7).normal(1.0, 0.3, 100_000)

    def cost_ms(name: str, n: int) -> float:
        return {"a": 9.9, "b": 10.0}[name] * float(np.abs(spread[2 * n + (name == "a")]))

    latencies, _ = timed(cost_ms, "ab", duration_s=3.0, max_duration_s=20.0, floats=floats)
    assert (latencies["a"].total_ms < 4e3) == ends


@pytest.mark.parametrize(("halves", "is_told"), [("b", True), ("", False), ("ab", False)])
def test_codes_that_gain_are_told_from_16_bit_floats(halves: str, is_told: bool):
    """a is 8 % faster than b with a spread; where b is in codes too, it is enough that a is not slower."""
    spread = np.random.default_rng(9).normal(1.0, 0.12, 100_000)

    def cost_ms(name: str, n: int) -> float:
        return {"a": 9.2, "b": 10.0, "c": 30.0}[name] * float(spread[2 * n + (name == "a")])

    latencies, _ = timed(cost_ms, "abc", duration_s=4.0, max_duration_s=4.0, floats="c", halves=halves)
    pair = compare_paired(latencies["a"], latencies["b"])
    assert pair.verdict == ("faster" if is_told else "same")


@pytest.mark.parametrize(("spread", "ends"), [(0.0, True), (0.25, False)])
def test_a_search_does_not_end_while_the_second_is_not_surely_faster_than_floats(spread: float, ends: bool):
    """a is clear; b, which counts where a is outside the budget, is 10 % faster than the floats c."""
    noise = np.abs(np.random.default_rng(8).normal(1.0, spread, 100_000))

    def cost_ms(name: str, n: int) -> float:
        return {"a": 5.0, "b": 9.0 * float(noise[n]), "c": 10.0}[name]

    latencies, _ = timed(cost_ms, "abc", duration_s=1.2, floats="c")
    assert (latencies["a"].total_ms <= 0.3e3) == ends
    assert compare_paired(latencies["b"], latencies["c"]).verdict == "faster"


def test_early_looks_rarely_call_equal_candidates_different():
    """Of 200 pairs, as many as the looks at the end of their time would: 1 % of each."""
    different = 0
    for seed in range(200):
        spread = np.random.default_rng(seed).normal(1.0, 0.1, 4_000)

        def cost_ms(name: str, n: int, spread: np.ndarray = spread) -> float:
            return 40.0 * float(spread[2 * n + (name == "a")])

        latencies, _ = timed(cost_ms, "ab", duration_s=6.0, max_duration_s=6.0, floats="a")
        different += compare_paired(latencies["a"], latencies["b"]).verdict != "same"
    assert different <= 5


@pytest.mark.parametrize(("spread", "ends"), [(0.02, True), (0.3, False)])
def test_codes_that_gain_little_beside_floats_are_told_no_longer_than_that_is_likely(
    spread: float, ends: bool
):
    """a is in codes, and 0.5 % faster than the floats b: FP32 is taken, whoever is the faster."""
    noise = np.abs(np.random.default_rng(11).normal(1.0, spread, 100_000))

    def cost_ms(name: str, n: int) -> float:
        return {"a": 9.95, "b": 10.0}[name] * float(noise[2 * n + (name == "a")])

    latencies, _ = timed(cost_ms, "ab", duration_s=3.0, max_duration_s=20.0, floats="b")
    pair = compare_paired(latencies["a"], latencies["b"], confidence=REGRET_CONFIDENCE_RATIO)
    assert not compare_paired(latencies["a"], latencies["b"]).is_decided
    assert (pair.lo >= 1 / (1 + REGRET_RATIO)) == ends
    assert (latencies["a"].total_ms < 3e3) == ends
    assert latencies["a"].total_ms >= 3e3 * SETTLED_RATIO


def test_what_has_to_be_waited_for_is_waited_for_before_every_turn():
    waited: list[int] = []
    machine = Machine(lambda name, n: 10.0)
    config = BenchConfig(warmup_s=0.0, duration_s=0.2, min_runs=1, max_duration_s=0.2)
    runs = {name: machine.run(name) for name in "ab"}
    found = time_interleaved(
        runs, config, before_turn=lambda: waited.append(len(machine.log)), clock=machine.clock
    )
    turn, warmup = found["a"].turn_runs + 1, 2 * 2
    rounds = len(found["a"].round_medians_ms())
    assert waited == [warmup + turn * number for number in range(2 * rounds)]


@pytest.mark.parametrize(("most_rounds", "rounds"), [(13, 13), (math.inf, 25)])
def test_rounds_are_bounded(most_rounds: float, rounds: int):
    machine = Machine(lambda name, n: 10.0)
    config = BenchConfig(warmup_s=0.0, duration_s=0.75, min_runs=1, max_duration_s=0.75)
    runs = {name: machine.run(name) for name in "ab"}
    found = time_interleaved(runs, config, most_rounds=most_rounds, clock=machine.clock)
    assert [len(one.round_medians_ms()) for one in found.values()] == [rounds, rounds]


@pytest.mark.parametrize(("codes_ms", "varies", "goes_on"), [(9.8, 0.1, False), (7.0, 0.5, True)])
def test_what_seems_to_gain_much_is_told_in_more_rounds_than_others(
    codes_ms: float, varies: float, goes_on: bool
):
    """Both vary, which hides 2 % and 30 % in 13 rounds."""
    spread = np.abs(np.random.default_rng(12).normal(1.0, varies, 100_000))
    machine = Machine(lambda name, n: {"a": codes_ms, "b": 10.0}[name] * float(spread[2 * n + (name == "a")]))
    config = BenchConfig(warmup_s=0.0, duration_s=3.0, min_runs=1, max_duration_s=9.0)
    runs = {name: machine.run(name) for name in "ab"}
    found = time_interleaved(runs, config, floats="b", most_rounds=13, clock=machine.clock)
    pair = compare_paired(found["a"], found["b"])
    assert (pair.rounds > 13) == goes_on
    assert pair.verdict == ("faster" if goes_on else "same")


def test_undecided_finalists_are_timed_on_and_bounded():
    spread = np.random.default_rng(3).uniform(0.5, 1.5, 100_000)
    latencies, _ = timed(
        lambda name, n: 10.0 * float(spread[n * 2 + (name == "a")]), "ab", max_duration_s=3.0
    )
    most_ms = max(latency.total_ms for latency in latencies.values())
    assert most_ms >= 3e3 or compare_paired(latencies["a"], latencies["b"]).is_decided
    assert most_ms < 3e3 + 15 * latencies["a"].turn_runs
    assert latencies["a"].total_ms > 1e3


def test_a_third_candidate_that_may_be_the_fastest_is_told_from_the_first():
    """a and b are equal; c is 2 % slower than both, with a spread."""
    spread = np.random.default_rng(4).normal(1.0, 0.05, 100_000)

    def cost_ms(name: str, n: int) -> float:
        return 10.2 * float(spread[n]) if name == "c" else 10.0

    latencies, _ = timed(cost_ms, "abc", duration_s=0.3, max_duration_s=50.0)
    assert compare_paired(latencies["a"], latencies["c"]).verdict == "faster"
    assert compare_paired(latencies["a"], latencies["b"]).verdict == "same"
    assert latencies["a"].total_ms < 30e3


def test_an_undecided_loser_does_not_matter():
    """b and c cannot be told apart, but a is faster than both."""
    spread = np.random.default_rng(3).uniform(0.5, 1.5, 100_000)

    def cost_ms(name: str, n: int) -> float:
        return 10.0 if name == "a" else 40.0 * float(spread[n * 2 + (name == "b")])

    latencies, _ = timed(cost_ms, "abc", duration_s=1.0, max_duration_s=50.0)
    assert latencies["b"].total_ms < 10e3


def test_the_bound_holds_but_for_the_rounds_that_a_ratio_needs():
    latencies, _ = timed(lambda name, n: 1000.0, "ab", min_runs=30, max_duration_s=5.0)
    assert [len(latency.samples_ms) for latency in latencies.values()] == [8, 8]
    assert compare_paired(latencies["a"], latencies["b"]).hi < math.inf
    heat, _ = timed(lambda name, n: 1000.0, "ab", min_runs=30, max_duration_s=5.0, min_rounds=1)
    assert [len(latency.samples_ms) for latency in heat.values()] == [5, 5]


def test_the_same_seed_gives_the_same_order():
    first, second = (timed(lambda name, n: 10.0, "abcd")[1].log for _ in range(2))
    assert first == second


def test_warmup_is_as_long_as_asked_and_not_counted():
    _, machine = timed(lambda name, n: 10.0, "a", warmup_s=1.0, duration_s=0.1, max_duration_s=0.1)
    latencies, short = timed(lambda name, n: 10.0, "a", warmup_s=0.0, duration_s=0.1, max_duration_s=0.1)
    assert len(machine.log) - len(short.log) == 100 - 2
    assert len(latencies["a"].samples_ms) < len(short.log)


def test_progress_only_grows_and_ends_full():
    seen: list[tuple[int, int | None]] = []
    machine = Machine(lambda name, n: 10.0)
    config = BenchConfig(warmup_s=0.0, duration_s=0.5, min_runs=1, max_duration_s=5.0)
    time_interleaved(
        {name: machine.run(name) for name in "ab"},
        config,
        lambda done, total: seen.append((done, total)),
        clock=machine.clock,
    )
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] >= 500


@pytest.mark.parametrize("was_enabled", [True, False])
def test_garbage_collection_is_off_while_timing_and_restored(was_enabled: bool):
    states = []

    def fail() -> None:
        states.append(gc.isenabled())
        if len(states) > 5:
            raise KeyError("stop")

    before = gc.isenabled()
    try:
        gc.enable() if was_enabled else gc.disable()
        with pytest.raises(KeyError):
            time_interleaved({"a": fail}, BenchConfig(warmup_s=10.0))
        assert gc.isenabled() is was_enabled
    finally:
        gc.enable() if before else gc.disable()
    assert not any(states)


def test_nothing_to_time_is_an_error():
    with pytest.raises(UsageError, match="nothing to time"):
        time_interleaved({}, BenchConfig())


# ---- comparing


def test_statistics_of_known_samples():
    latency = Latency(tuple(map(float, range(1, 102))))
    assert (latency.median_ms, latency.mean_ms, latency.min_ms, latency.max_ms) == (51.0, 51.0, 1.0, 101.0)
    assert (latency.p(0.95), latency.p(0.0), latency.p(1.0)) == (96.0, 1.0, 101.0)
    assert latency.cv_ratio == pytest.approx(math.sqrt((101**2 - 1) / 12) / 51)
    assert latency.total_ms == 101 * 51


def test_round_medians_belong_to_rounds():
    latency = Latency((1.0, 9.0, 2.0, 7.0, 7.0, 8.0), turn_runs=3)
    np.testing.assert_array_equal(latency.round_medians_ms(), [2.0, 7.0])


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([0.9] * 20, "faster"),
        ([1.1] * 20, "slower"),
        ([1.0] * 20, "same"),
        ([0.9, 1.1] * 20, "same"),
        ([0.9] * 19 + [5.0], "faster"),
        ([0.5] * 7, "same"),  # 2 / 2**7 is above 1 %: too few to be sure
        ([0.5] * 8, "faster"),
    ],
)
def test_verdict(ratios: list[float], verdict: str):
    base = Latency(tuple(np.linspace(1.0, 30.0, len(ratios))))
    other = Latency(tuple(ratio * time for ratio, time in zip(ratios, base.samples_ms, strict=True)))
    pair = compare_paired(other, base)
    assert pair.verdict == verdict
    assert pair.ratio == pytest.approx(float(np.median(ratios)))
    assert pair.lo <= pair.ratio <= pair.hi
    assert pair.rounds == len(ratios)


@pytest.mark.parametrize(("count", "rank"), [(8, 1), (10, 1), (12, 2), (20, 4), (30, 8), (50, 16), (100, 37)])
def test_the_interval_is_between_the_exact_ranks(count: int, rank: int):
    """The rank is the largest k with 2 P(Binomial(count, 1/2) < k) <= 0.01, summed here without rounding."""

    def tail(k: int) -> int:
        return 2 * sum(math.comb(count, i) for i in range(k))

    assert 100 * tail(rank) <= 2**count < 100 * tail(rank + 1)
    ratios = np.arange(1.0, count + 1.0)
    pair = compare_paired(Latency(tuple(ratios[::-1])), Latency((1.0,) * count))
    assert (pair.lo, pair.hi) == (rank, count + 1 - rank)


def test_pairs_see_what_medians_of_drifting_times_do_not(rng: np.random.Generator):
    base = np.exp(rng.uniform(0, 3, 60))
    pair = compare_paired(Latency(tuple(0.97 * base)), Latency(tuple(base)))
    assert pair.verdict == "faster"
    assert pair.ratio == pytest.approx(0.97)


def test_the_interval_covers_the_true_median_as_often_as_it_says(rng: np.random.Generator):
    """1000 experiments of 41 rounds without a difference: about 1 % or fewer may be called different."""
    base = Latency((1.0,) * 41)
    wrong = sum(
        compare_paired(Latency(tuple(np.exp(rng.normal(0, 0.1, 41)))), base).verdict != "same"
        for _ in range(1000)
    )
    assert wrong <= 20


@pytest.mark.parametrize(
    ("lo", "hi", "is_decided"),
    [
        (0.5, 0.9, True),
        (1.1, 1.2, True),
        (0.99, 1.01, True),
        (1 - 2 * EQUAL_RATIO, 1.0, False),
        (0.9, 1.1, False),
        (0.0, math.inf, False),
    ],
)
def test_decided_means_different_or_equal_for_certain(lo: float, hi: float, is_decided: bool):
    assert Paired((lo + hi) / 2, lo, hi, 30).is_decided is is_decided


def test_latencies_of_different_rounds_are_not_compared():
    with pytest.raises(UsageError, match="not timed together"):
        compare_paired(Latency((1.0, 2.0)), Latency((1.0,)))
    with pytest.raises(UsageError, match="not timed together"):
        compare_paired(Latency(()), Latency(()))


class OwnClock:
    """A run whose device says what it took; the host's clock says something else."""

    def __init__(self, machine: Machine, name: str, device_ms: float) -> None:
        self._run = machine.run(name)
        self._device_ms = device_ms
        self.counts: list[int] = []

    def __call__(self) -> None:
        self._run()

    def times_ms(self, count: int) -> list[float]:
        self.counts.append(count)
        return [self._device_ms] * count


def test_a_run_that_times_itself_is_believed():
    machine = Machine(lambda name, n: 30.0)
    runs = {name: OwnClock(machine, name, device_ms) for name, device_ms in (("a", 2.0), ("b", 3.0))}
    config = BenchConfig(warmup_s=0.0, duration_s=0.5, min_runs=1, max_duration_s=5.0)
    found = time_interleaved(runs, config, clock=machine.clock)
    assert (set(found["a"].samples_ms), set(found["b"].samples_ms)) == ({2.0}, {3.0})
    assert set(runs["a"].counts[2:]) == {found["a"].turn_runs} == {3}  # OWN_TURN_MS of the faster one
    assert min(latency.total_ms for latency in found.values()) >= 500.0


def test_slow_runs_that_time_themselves_are_timed_at_once():
    machine = Machine(lambda name, n: 1.0)
    runs = {name: OwnClock(machine, name, device_ms) for name, device_ms in (("a", 10.0), ("b", 170.0))}
    config = BenchConfig(warmup_s=0.0, duration_s=0.1, min_runs=30, max_duration_s=2.0)
    found = time_interleaved(runs, config, clock=machine.clock)
    assert found["a"].turn_runs == 1
    rounds = len(found["a"].samples_ms)
    assert MIN_ROUNDS <= rounds < 30  # the time is up before the runs are
    assert Counter(machine.log) == {"a": rounds}  # untimed runs before the timed ones; b needs none


def test_figures_of_a_latency_by_name():
    assert Latency((3.0, 1.0, 2.0)).figures(0, 100) == {
        "median_ms": 2.0,
        "mean_ms": 2.0,
        "min_ms": 1.0,
        "max_ms": 3.0,
        "p0_ms": 1.0,
        "p100_ms": 3.0,
    }
