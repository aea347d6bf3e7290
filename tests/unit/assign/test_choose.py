# SPDX-License-Identifier: Apache-2.0
"""The guard, on made-up latencies and accuracies."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from quantrt.assign.accuracy.accuracy import Accuracy
from quantrt.assign.choose import choose, choose_small, choose_untimed, fastest
from quantrt.tactics.timing import Latency

ROUNDS = 60


def latency(ms: float, spread: float = 0.0) -> Latency:
    """`ROUNDS` rounds around `ms`; a spread above the difference of two makes them the same."""
    return Latency(tuple(ms * (1 + spread * (-1) ** i) for i in range(ROUNDS)))


def accuracy(drop: float) -> Accuracy:
    return Accuracy("top1", 0.9, 0.9 * (1 - drop), drop, 30.0, 0.999, 100, 100)


@dataclass(frozen=True)
class Case:
    name: str
    times_ms: Mapping[str, float]
    drops: Mapping[str, float] = field(default_factory=dict)
    winner: str = ""
    reason: str = ""
    statuses: Mapping[str, str] = field(default_factory=dict)
    checked: tuple[str, ...] = ()
    spread: float = 0.0


FLOATS = {"ort fp32": True, "ov fp32": True}

CASES = (
    Case(
        "the fastest inside the budget is shipped",
        {"ort fp32": 10, "ov fp32": 8, "ort int8": 5, "ov int8": 4},
        {"ov int8": 0.001, "ort int8": 0.0},
        "ov int8",
        "ov int8 is 2.00x as fast as ov fp32 and inside the accuracy budget",
        {"ov int8": "shipped", "ort int8": "passed over", "ov fp32": "baseline", "ort fp32": "passed over"},
        ("ov int8",),
    ),
    Case(
        "one over the budget gives way to the next",
        {"ov fp32": 8, "ort int8": 5, "ov int8": 4},
        {"ov int8": 0.2, "ort int8": 0.01},
        "ort int8",
        "ort int8 is 1.60x",
        {"ov int8": "over budget", "ort int8": "shipped", "ov fp32": "baseline"},
        ("ov int8", "ort int8"),
    ),
    Case(
        "all over the budget: float, and it says so",
        {"ov fp32": 8, "ort int8": 5, "ov int8": 4},
        {"ov int8": 0.2, "ort int8": 0.3},
        "ov fp32",
        "ov fp32 is shipped: ov int8 is outside the budget (top1 drop 0.2000 is over the budget of 0.0100)",
        {"ov int8": "over budget", "ort int8": "over budget", "ov fp32": "shipped"},
        ("ov int8", "ort int8"),
    ),
    Case(
        "slower int8 is not even checked",
        {"ov fp32": 4, "ov int8": 8},
        {"ov int8": 0.0},
        "ov fp32",
        "ov fp32 is shipped: ov int8 is slower than ov fp32",
        {"ov int8": "passed over", "ov fp32": "shipped"},
    ),
    Case(
        "a difference inside the spread is no difference",
        {"ov fp32": 8.0, "ov int8": 7.9},
        {"ov int8": 0.0},
        "ov fp32",
        "ov int8 is not surely faster than ov fp32",
        {"ov int8": "passed over"},
        spread=0.1,
    ),
    Case(
        "a drop that is no number never passes",
        {"ov fp32": 8, "ov int8": 4},
        {"ov int8": math.nan},
        "ov fp32",
        "outside the budget",
        {"ov int8": "over budget"},
        ("ov int8",),
    ),
    Case(
        "an infinite drop never passes",
        {"ov fp32": 8, "ov int8": 4},
        {"ov int8": math.inf},
        "ov fp32",
        "outside the budget",
        {"ov int8": "over budget"},
        ("ov int8",),
    ),
    Case(
        "a better score than the float model's is inside any budget",
        {"ov fp32": 8, "ov int8": 4},
        {"ov int8": -0.01},
        "ov int8",
        "inside the accuracy budget",
        {"ov int8": "shipped"},
        ("ov int8",),
    ),
    Case(
        "without data the speed alone decides, and the reason says that nothing was checked",
        {"ov fp32": 8, "ov int8": 4},
        {},
        "ov int8",
        "ov int8 is 2.00x as fast as ov fp32; its accuracy was not checked: there are no data",
        {"ov int8": "shipped"},
        ("ov int8",),
    ),
    Case(
        "float alone",
        {"ort fp32": 9, "ov fp32": 8},
        {},
        "ov fp32",
        "fp32 was the only precision to choose from",
        {"ov fp32": "shipped", "ort fp32": "passed over"},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_guard(case: Case):
    checked = []

    def check(name: str) -> Accuracy | None:
        checked.append(name)
        return accuracy(case.drops[name]) if name in case.drops else None

    latencies = {
        name: latency(ms, case.spread if "int8" in name else -case.spread)
        for name, ms in case.times_ms.items()
    }
    choice = choose(latencies, {name: name in FLOATS for name in latencies}, check, 0.01)
    assert choice.winner == case.winner
    assert case.reason in choice.reason
    assert tuple(checked) == case.checked
    assert set(choice.verdicts) == set(latencies)
    assert {name: choice.verdicts[name].status for name in case.statuses} == dict(case.statuses)
    assert choice.verdicts[choice.baseline].against_float is None
    assert list(choice.verdicts.values()).count(choice.verdicts[choice.winner]) == 1


def test_a_drop_of_exactly_the_budget_passes():
    latencies = {"ov fp32": latency(8), "ov int8": latency(4)}
    choice = choose(latencies, FLOATS | {"ov int8": False}, lambda name: accuracy(0.01), 0.01)
    assert choice.winner == "ov int8"


def test_bf16_needs_a_check_like_int8():
    latencies = {"ov fp32": latency(8), "ov bf16": latency(4)}
    choice = choose(latencies, FLOATS | {"ov bf16": False}, lambda name: accuracy(0.5), 0.01)
    assert choice.winner == "ov fp32"


GPU_FLOATS = {"fp32": True, "fp16": False, "int8": False, "int8 mixed": False}
CODES = {"int8", "int8 mixed"}


def on_gpu(rng: np.random.Generator, times_ms: Mapping[str, float], rounds: int = 100) -> dict[str, Latency]:
    """Rounds of three runs that drift together and spread by 2 % each, some with an interruption."""
    drift = 1 + 0.05 * np.sin(np.arange(rounds) / 9) + 0.3 * (rng.random(rounds) < 0.02)
    return {
        name: Latency(tuple((ms * drift[:, None] * rng.normal(1, 0.02, (rounds, 3))).reshape(-1)), 3)
        for name, ms in times_ms.items()
    }


def shipped(latencies: Mapping[str, Latency], drops: Mapping[str, float] | None = None) -> str:
    drops = drops or {}
    choice = choose(
        latencies, GPU_FLOATS, lambda name: accuracy(drops.get(name, 0.0)), 0.01, codes=CODES & set(latencies)
    )
    return choice.winner


@pytest.mark.parametrize(
    ("int8_ms", "least", "most"),
    [(1.0, 0, 3), (0.99, 85, 100), (0.97, 100, 100), (1.01, 0, 0)],
    ids=["as fast", "1 % faster", "3 % faster", "1 % slower"],
)
def test_codes_ship_where_they_are_surely_faster_than_halves(int8_ms: float, least: int, most: int):
    """Of a hundred builds, so many ship int8; noise alone makes it look the faster in about fifty."""
    rng = np.random.default_rng(5)
    builds = [on_gpu(rng, {"fp32": 3.0, "fp16": 1.0, "int8": int8_ms}) for _ in range(100)]
    assert least <= sum(shipped(latencies) == "int8" for latencies in builds) <= most
    if int8_ms == 1.0:
        assert 30 <= sum(fastest(latencies) == "int8" for latencies in builds) <= 70


def test_codes_that_are_as_fast_as_halves_say_so_and_come_after_them():
    latencies = {"fp32": latency(3), "fp16": latency(1.0), "int8": latency(0.999, 0.05)}
    choice = choose(latencies, GPU_FLOATS, lambda name: accuracy(0.0), 0.01, codes=CODES & set(latencies))
    assert choice.winner == "fp16"
    assert choice.verdicts["int8"].reason == "not surely faster than fp16"
    assert shipped(latencies, {"fp16": 0.5}) == "int8", "halves outside the budget give way to codes"
    assert shipped(latencies, {"fp16": 0.5, "int8": 0.5}) == "fp32"


def test_each_kind_of_codes_is_held_against_halves():
    latencies = {
        "fp32": latency(3),
        "fp16": latency(1.0),
        "int8": latency(0.99, 0.05),
        "int8 mixed": latency(0.995),
    }
    assert shipped(latencies) == "int8 mixed", "the faster one is not surely so, the other is"
    assert shipped(latencies, {"int8 mixed": 0.5}) == "fp16"


@pytest.mark.parametrize(
    ("fp8_ms", "spread", "drops", "winner", "passed_over"),
    [
        (0.99, 0.05, {}, "int8", {"fp8": "not surely faster than int8", "fp16": "slower than int8"}),
        (0.9, 0.0, {}, "fp8", {"int8": "slower than fp8", "fp16": "slower than fp8"}),
        (0.99, 0.05, {"int8": 0.5}, "fp8", {"fp16": "slower than fp8"}),
        (1.1, 0.0, {}, "int8", {"fp8": "slower than int8", "fp16": "slower than int8"}),
    ],
    ids=["as fast", "surely faster", "int8 is outside", "slower"],
)
def test_codes_of_fp8_ship_where_they_are_surely_faster_than_int8(fp8_ms, spread, drops, winner, passed_over):
    latencies = {"fp32": latency(9), "fp16": latency(2), "fp8": latency(fp8_ms, spread), "int8": latency(1)}
    choice = choose(
        latencies,
        {name: name == "fp32" for name in latencies},
        lambda name: accuracy(drops.get(name, 0.0)),
        0.01,
        codes={"fp8", "int8"},
        coarse={"fp8"},
    )
    assert choice.winner == winner
    lost = {name: row.reason for name, row in choice.verdicts.items() if row.status == "passed over"}
    assert lost == passed_over


@pytest.mark.parametrize(
    ("bad", "checked"), [({"fp16"}, ["fp16", "int8"]), ({"fp16", "int8"}, ["fp16", "int8", "fp8"])]
)
def test_codes_that_are_as_fast_as_halves_come_after_them_those_of_fp8_last(bad, checked):
    latencies = {
        "fp32": latency(9),
        "fp16": latency(1),
        "fp8": latency(0.99, 0.05),
        "int8": latency(0.995, -0.05),
    }
    asked = []

    def check(name: str) -> Accuracy:
        asked.append(name)
        return accuracy(0.5 if name in bad else 0.0)

    is_float = {name: name == "fp32" for name in latencies}
    choice = choose(latencies, is_float, check, 0.01, codes={"fp8", "int8"}, coarse={"fp8"})
    assert choice.winner == checked[-1]
    assert asked == checked


def test_the_fastest_has_the_least_median():
    assert fastest({"a": latency(2), "b": latency(1), "c": latency(3)}) == "b"


@pytest.mark.parametrize(
    ("drops", "winner"),
    [
        ({"int8": 0.001, "fp16": 0.0}, "int8"),
        ({"int8": 0.5, "fp16": 0.0}, "fp16"),
        ({"int8": float("nan"), "fp16": 0.5}, "fp32"),
        ({"int8": None, "fp16": None}, "int8"),
    ],
)
def test_without_timings_the_first_inside_the_budget_is_taken(drops, winner):
    def check(name: str) -> Accuracy | None:
        return None if drops[name] is None else accuracy(drops[name])

    choice = choose_untimed(["int8", "fp16", "fp32"], check, 0.01)
    assert (choice.winner, choice.baseline) == (winner, "fp32")
    assert set(choice.verdicts) == {"int8", "fp16", "fp32"}
    assert [name for name, row in choice.verdicts.items() if row.status == "shipped"] == [winner]
    assert all(row.against_float is None for row in choice.verdicts.values())
    assert "not timed" in choice.reason or "untimed" in choice.reason


@pytest.mark.parametrize(
    ("drop", "winner", "reason", "why"),
    [
        (None, "int8", "int8 was asked for; it was not timed", "its accuracy was not checked; not timed"),
        (0.01, "int8", "int8 was asked for; it was not timed", "inside the budget; not timed"),
        (0.02, "fp32", "fp32 is shipped, untimed: int8 is outside the budget (top1 drop 0.0200", "top1 drop"),
    ],
    ids=["not checked", "exactly the budget", "over it"],
)
def test_a_choice_without_timings_says_why(drop: float | None, winner: str, reason: str, why: str):
    choice = choose_untimed(["int8", "fp32"], lambda name: None if drop is None else accuracy(drop), 0.01)
    assert choice.winner == winner
    assert choice.reason.startswith(reason) and choice.verdicts["int8"].reason.startswith(why)
    assert choice.verdicts["fp32"].status == ("shipped" if winner == "fp32" else "baseline")


def test_one_that_is_wrong_elsewhere_gives_way_to_the_next():
    times = {"ov fp32": 8.0, "ov int8": 4.0, "ort int8": 5.0}
    asked: list[str] = []

    def why_wrong(name: str) -> str | None:
        asked.append(name)
        return "its outputs are wrong at batch 4" if name == "ov int8" else None

    def decide(drop: float):
        return choose(
            {name: latency(ms) for name, ms in times.items()},
            {name: name.endswith("fp32") for name in times},
            lambda name: accuracy(drop if name == "ort int8" else 0.0),
            0.01,
            why_wrong=why_wrong,
        )

    choice = decide(0.0)
    assert choice.winner == "ort int8" and asked == ["ov int8", "ort int8"]
    found = choice.verdicts["ov int8"]
    assert (found.status, found.reason) == ("wrong", "its outputs are wrong at batch 4")
    choice = decide(0.5)
    assert choice.winner == "ov fp32"
    assert choice.reason == "ov fp32 is shipped: ov int8 is wrong (its outputs are wrong at batch 4)"


SMALL = {"ort fp32": 8.0, "ov fp32": 10.0, "ort int4": 12.0}


def choose_for_size(times_ms: Mapping[str, float], drop: float | None):
    """The choice among FP32 and weights in 4 bits, which are asked for."""
    latencies = {name: latency(ms) for name, ms in times_ms.items()}

    def check(name: str) -> Accuracy | None:
        return None if drop is None else accuracy(drop)

    by_time = choose(latencies, {name: "fp32" in name for name in latencies}, check, 0.01)
    return by_time, choose_small(by_time, "ort int4", latencies, check, 0.01)


def test_what_is_small_is_shipped_inside_the_budget_though_it_is_slower():
    by_time, choice = choose_for_size(SMALL, 0.001)
    assert by_time.winner == "ort fp32" and choice.winner == "ort int4"
    assert {name: v.status for name, v in choice.verdicts.items()} == {
        "ort int4": "shipped",
        "ort fp32": "baseline",
        "ov fp32": "passed over",
    }
    assert "by its size" in choice.reason and "0.67x as fast as ort fp32" in choice.reason


def test_what_is_small_and_the_fastest_was_chosen_already():
    by_time, choice = choose_for_size({**SMALL, "ort int4": 4.0}, 0.001)
    assert choice is by_time and choice.winner == "ort int4"


@pytest.mark.parametrize("drop", [0.02, math.nan])
def test_what_is_small_and_outside_the_budget_is_not_shipped(drop: float):
    _, choice = choose_for_size(SMALL, drop)
    assert choice.winner == "ort fp32" and choice.verdicts["ort int4"].status == "over budget"
    assert choice.verdicts["ort fp32"].status == "shipped" and "outside the budget" in choice.reason


def test_what_is_small_is_shipped_unchecked_where_nothing_can_check_it():
    _, choice = choose_for_size(SMALL, None)
    assert choice.winner == "ort int4" and "not checked" in choice.reason


def test_what_is_small_is_shipped_in_place_of_what_was_faster():
    by_time, choice = choose_for_size({**SMALL, "ov int8": 4.0}, 0.01)  # a drop of all that may be lost
    assert (by_time.winner, choice.winner) == ("ov int8", "ort int4")
    assert {name: v.status for name, v in choice.verdicts.items()} == {
        "ort int4": "shipped",
        "ov int8": "passed over",
        "ort fp32": "baseline",
        "ov fp32": "passed over",
    }
    assert "inside the budget" in choice.verdicts["ort int4"].reason


def test_what_is_small_and_not_checked_is_shipped_and_told_so():
    _, choice = choose_for_size(SMALL, None)
    assert choice.winner == "ort int4"
    assert choice.verdicts["ort int4"].reason.endswith("its accuracy was not checked: there are no data")
