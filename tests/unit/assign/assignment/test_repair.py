# SPDX-License-Identifier: Apache-2.0
"""Rounds of repair against made-up engines that do not always do what the tables say."""

from collections.abc import Callable, Collection

import pytest

from quantrt.assign.assignment.assignment import Assigned
from quantrt.assign.assignment.repair import repair
from quantrt.assign.tables.tables import BuiltEngine
from tests.unit.assign.tables.assign_tables import DAMAGES, tables


class Workshop:
    """Engines whose noise and time follow from the assignment by made-up rules."""

    def __init__(self, joint: Callable[[set[str]], float] | None = None, ms: float = 0.0) -> None:
        self._joint = joint or (lambda names: sum(DAMAGES[name] for name in names))
        self._more_ms = ms
        self.built: list[Assigned] = []

    def joint(self, names: Collection[str]) -> float:
        return self._joint(set(names))

    def build(self, assigned: Assigned) -> BuiltEngine:
        self.built.append(assigned)
        noise = self.joint(assigned.quantized)
        return BuiltEngine(assigned.precisions, assigned.predicted_ms + self._more_ms, None, 0.7 * noise**0.5)


def run(workshop: Workshop, *, max_drop: float = 0.02, best_ms: float = 6.0, rounds: int = 4, **made):
    return repair(tables(**made), workshop, max_drop_ratio=max_drop, best_ms=best_ms, most_rounds=rounds)


def test_the_result_is_inside_the_budget_and_the_culprits_are_float():
    outcome = run(Workshop())
    assert outcome.best is not None
    assert outcome.best.engine.drop_ratio <= 0.02
    precisions = outcome.best.engine.assignment
    assert precisions["b"] == precisions["f"] == "fp32"
    assert sum(precision == "int8" for precision in precisions.values()) >= 3
    assert len(outcome.tables.engines) == 2 + len(outcome.rounds)


def test_regions_that_are_bad_together_are_found_and_parted():
    def joint(names: set[str]) -> float:
        return sum(DAMAGES[name] for name in names) + (0.05 if {"a", "c"} <= names else 0.0)

    outcome = run(Workshop(joint))
    assert outcome.best is not None
    assert not {"a", "c"} <= {name for name, p in outcome.best.engine.assignment.items() if p == "int8"}
    assert any(set(one.culprits) & {"a", "c"} for one in outcome.rounds)


def test_where_every_engine_is_outside_the_rounds_are_bounded_and_there_is_no_best():
    workshop = Workshop(lambda names: 0.9 if names else 0.0)
    outcome = run(workshop, rounds=3)
    assert outcome.best is None
    assert len(workshop.built) <= 3
    assert outcome.reason


def test_noise_that_all_regions_share_is_stepped_over():
    """Where half of the drop stays whatever becomes float, rounds along the law would all end outside."""

    class Shared(Workshop):
        def build(self, assigned: Assigned) -> BuiltEngine:
            built = super().build(assigned)
            drop = 0.017 + 0.2 * self.joint(assigned.quantized) ** 0.5
            return BuiltEngine(built.assignment, built.latency_ms, None, drop)

    outcome = run(Shared(), max_drop=0.02)
    assert outcome.best is not None
    limits = [one.limit for one in outcome.rounds]
    outside = [one for one in outcome.rounds if not one.is_inside]
    assert outside, "the first round has to miss for this to show anything"
    for one, after in zip(outcome.rounds, limits[1:], strict=False):
        if one in outside:
            assert after <= 0.3 * one.engine.noise_ratio


def test_what_is_predicted_to_be_slower_is_not_built():
    workshop = Workshop()
    outcome = run(workshop, best_ms=3.0)
    assert not workshop.built
    assert outcome.reason.startswith("the next is predicted to take")


def test_without_damages_the_time_alone_counts():
    workshop = Workshop(lambda names: 1e-6)
    outcome = run(workshop, damages={}, best_ms=6.0)
    assert outcome.best is not None
    assert outcome.rounds[0].limit == float("inf")
    assert outcome.rounds[0].engine.noise_ratio is None


def test_measured_times_correct_the_rate_of_conversions():
    outcome = run(Workshop(ms=0.3), rounds=1)
    assert outcome.tables.costs.ns_per_element == pytest.approx(0.5 + 0.3e6 / (100_000 * 3))


def test_a_region_that_makes_nan_in_company_is_taken_out():
    def joint(names: set[str]) -> float:
        return float("nan") if {"c", "e"} <= names else sum(DAMAGES[name] for name in names)

    outcome = run(Workshop(joint))
    assert outcome.best is not None
    assert not {"c", "e"} <= {name for name, p in outcome.best.engine.assignment.items() if p == "int8"}
