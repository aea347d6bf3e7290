# SPDX-License-Identifier: Apache-2.0
"""Solve, build, measure, and again: until the fastest assignment found is inside the budget for certain.

Every round solves for a noise limit, builds the engine, and measures its real time and its real accuracy.
Both go back into the tables: the rate of conversions, and how much noise the budget allows. Where regions
make more noise together than apart, that group is found, and counts for more from then on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from quantrt.assign.assignment.assignment import Assigned, assign
from quantrt.assign.assignment.together import choose_together
from quantrt.assign.tables.noise_limit import next_limit
from quantrt.assign.tables.tables import BuiltEngine, Tables

__all__ = ["Outcome", "Round", "Workshop", "repair"]

WORTH_RATIO = 0.97
"""Of the time of the best engine so far: an assignment predicted to be slower than this is not built."""


class Workshop(Protocol):
    """What the rounds need done."""

    def joint(self, names: Collection[str]) -> float:
        """Noise of the outputs with these regions quantized together."""

    def build(self, assigned: Assigned) -> BuiltEngine:
        """Build the engine of an assignment, and measure it; its own assignment is what it really has."""


@dataclass(frozen=True)
class Round:
    """One engine that was built.

    Attributes:
        limit: of the noise, which was solved for; infinite where the time alone counted.
        assigned: what was solved.
        culprits: regions that made more noise together than apart, found on the way.
        engine: what was measured.
        is_inside: whether it is inside the budget.
    """

    limit: float
    assigned: Assigned
    culprits: tuple[str, ...]
    engine: BuiltEngine
    is_inside: bool


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        tables: with every engine that was built.
        rounds: in their order.
        best: the round of the fastest engine inside the budget; None without any.
        reason: why no further round was made, one sentence.
    """

    tables: Tables
    rounds: tuple[Round, ...]
    best: Round | None
    reason: str


@dataclass
class _State:
    """What changes from round to round."""

    tables: Tables
    damages: Mapping[str, Mapping[str, float]]
    rounds: list[Round] = field(default_factory=list)

    @property
    def best(self) -> Round | None:
        """The fastest round inside the budget."""
        inside = [one for one in self.rounds if one.is_inside]
        return min(inside, key=lambda one: one.engine.latency_ms or math.inf, default=None)


def repair(
    tables: Tables,
    workshop: Workshop,
    *,
    max_drop_ratio: float,
    best_ms: float,
    most_rounds: int,
    on_round: Callable[[Round], None] = lambda done: None,
) -> Outcome:
    """The fastest assignment inside the budget, by so many engines at most.

    Args:
        tables: with the times of every region; with damages, unless everything measured is inside the budget.
        best_ms: of the fastest engine inside the budget so far, the float one at least.
        on_round: called after each.
    """
    state = _State(tables, tables.damages)
    reason = f"{most_rounds} rounds were made"
    while len(state.rounds) < most_rounds:
        limit = _limit(state, max_drop_ratio)
        found, culprits, joint = _solve(state, workshop, limit)
        refusal = _refusal(found, state, min([best_ms, *_inside_ms(state)]))
        if found is None or refusal is not None:
            reason = refusal or "no assignment is within the limit"
            break
        built = workshop.build(found)
        engine = BuiltEngine(built.assignment, built.latency_ms, joint, built.drop_ratio)
        is_inside = engine.drop_ratio is not None and engine.drop_ratio <= max_drop_ratio
        state.tables = state.tables.with_engine(engine)
        state.rounds.append(Round(limit, found, culprits, engine, is_inside))
        on_round(state.rounds[-1])
    return Outcome(state.tables, tuple(state.rounds), state.best, reason)


def _limit(state: _State, max_drop_ratio: float) -> float:
    """Of the noise, for the next round."""
    last = state.rounds[-1].engine.noise_ratio if state.rounds else None
    points, metric = state.tables.points, state.tables.metric
    return next_limit(points, metric, max_drop_ratio, last, is_one_inside=state.best is not None)


def _inside_ms(state: _State) -> list[float]:
    best = state.best
    return [] if best is None or best.engine.latency_ms is None else [best.engine.latency_ms]


def _refusal(found: Assigned | None, state: _State, best_ms: float) -> str | None:
    """Why an assignment is not built; None where it is."""
    if found is None or not found.quantized:
        return "no region can be quantized within the limit"
    if any(found.precisions == one.assigned.precisions for one in state.rounds):
        return "the same assignment came out again"
    if found.predicted_ms > WORTH_RATIO * best_ms:
        return f"the next is predicted to take {found.predicted_ms:.3g} ms, and {best_ms:.3g} ms are had"
    return None


def _solve(
    state: _State, workshop: Workshop, limit: float
) -> tuple[Assigned | None, tuple[str, ...], float | None]:
    """An assignment whose regions together are within the limit, as far as a few corrections make it so."""
    if not state.tables.damages:
        return assign(state.tables, limit, state.damages), (), None
    made = choose_together(partial(assign, state.tables), state.damages, workshop.joint, limit)
    state.damages = made.damages
    return made.found, made.culprits, made.noise_ratio
