# SPDX-License-Identifier: Apache-2.0
"""Rounds between files of made-up layers whose noise and drop are known."""

import math
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

from quantrt.qdq_model.search import NONE_LEFT, search

DAMAGES = {"stem": 0.02, "wide": 0.001, "sum": 0.01, "head": 0.0001}
OPERATIONS = {"stem": 100, "wide": 800, "sum": 1, "head": 99}
BUDGET = 0.01


class Bench:
    """Drops that are half of the noise of all layers in codes, unless they are told."""

    def __init__(self, drops: dict[tuple[str, ...], float] | None = None) -> None:
        self.drops = drops or {}
        self.made: list[tuple[str, ...]] = []

    def joint(self, names: Collection[str]) -> float:
        return sum(DAMAGES[name] for name in names)

    def make(self, left_float: Collection[str]) -> Any:
        floats = tuple(left_float)
        self.made.append(floats)
        codes = tuple(name for name in DAMAGES if name not in floats)
        drop = self.drops.get(codes, self.joint(codes) / 2.0)
        return SimpleNamespace(accuracy=SimpleNamespace(drop_ratio=drop), is_inside=drop <= BUDGET)


def searched(bench: Bench, rounds: int = 8, **options: Any):
    whole = bench.make(())
    bench.made.clear()
    return search(
        whole,
        DAMAGES,
        OPERATIONS,
        bench,
        metric="sqnr",
        max_drop_ratio=BUDGET,
        most_rounds=rounds,
        **options,
    )


def test_what_does_the_most_harm_for_the_fewest_operations_is_left_float():
    bench, done = Bench(), list[int]()
    found = searched(bench, on_round=done.append)
    inside = [floats for floats, one in zip(bench.made, found.rounds, strict=True) if one.judged.is_inside]
    assert ("stem",) in inside, "0.0111 of noise is a drop of 0.0056"
    assert not any("wide" in floats for floats in inside), "most operations, little noise"
    assert done == list(range(1, len(found.rounds) + 1))
    assert found.reason == "the same layers came out again"


def test_rounds_are_bounded():
    found = searched(Bench(), rounds=1)
    assert len(found.rounds) == 1 and found.reason == "1 rounds were made"


def test_no_choice_is_made_twice():
    bench = Bench()
    searched(bench)
    assert len(set(bench.made)) == len(bench.made)


def test_where_every_layer_breaks_the_metric_there_is_nothing_left_to_try():
    found = search(
        SimpleNamespace(accuracy=SimpleNamespace(drop_ratio=math.inf), is_inside=False),
        dict.fromkeys(DAMAGES, math.nan),
        OPERATIONS,
        Bench(),
        metric="top1",
        max_drop_ratio=BUDGET,
        most_rounds=8,
    )
    assert (found.rounds, found.reason) == ((), NONE_LEFT)


def test_a_layer_that_makes_a_nan_is_float_whatever_it_costs():
    bench = Bench()
    found = search(
        bench.make(()),
        {**DAMAGES, "wide": math.nan},
        OPERATIONS,
        bench,
        metric="sqnr",
        max_drop_ratio=BUDGET,
        most_rounds=2,
    )
    assert found.rounds and all("wide" in floats for floats in bench.made[1:])


def test_a_layer_more_is_float_where_the_metric_is_worse_than_noise_tells():
    bench = Bench({("wide", "sum", "head"): 0.5})
    found = searched(bench)
    first, *rest = found.rounds
    assert bench.made[0] == ("stem",) and not first.judged.is_inside
    assert all(one.limit < first.limit for one in rest)
    assert ("stem", "sum") in bench.made, "one operation more in floats, and 0.01 less of noise"
