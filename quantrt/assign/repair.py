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
from typing import Protocol

from quantrt.assign.assignment import Assigned, assign
from quantrt.assign.culprits import excess_ratio, find_culprits, raised
from quantrt.assign.noise_limit import noise_limit
from quantrt.assign.tables import BuiltEngine, Tables

__all__ = ["Outcome", "Round", "Workshop", "repair"]

WORTH_RATIO = 0.97
"""Of the time of the best engine so far: an assignment predicted to be slower than this is not built."""

NOT_ADDITIVE_RATIO = 1.5
"""Noise of regions together over the sum of their damages, from which on somebody is to blame: 1.8 dB."""

STEP_RATIO = 0.3
"""Of the noise of the last engine, what is tried next while none is inside the budget: 5 dB. Noise that all
regions share stays when some become floats, and a law through it would go on a little at a time."""

CORRECTIONS = 3
"""Groups that are found and made to count for more, in one round."""


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
    limit = noise_limit(state.tables.points, state.tables.metric, max_drop_ratio)
    last = state.rounds[-1].engine.noise_ratio if state.rounds else None
    return limit if last is None or state.best is not None else min(limit, STEP_RATIO * last)


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
    culprits: tuple[str, ...] = ()
    found = assign(state.tables, limit, state.damages)
    if found is None or not found.quantized or not state.tables.damages:
        return found, culprits, None
    joint = workshop.joint(found.quantized)
    for _ in range(CORRECTIONS):
        own = _own(state.damages, found)
        ratio = excess_ratio(found.quantized, own, joint)
        if joint <= limit or ratio < NOT_ADDITIVE_RATIO:  # a NaN is neither
            break
        group = find_culprits(found.quantized, own, workshop.joint)
        factor = max(excess_ratio(group, own, workshop.joint(group)), NOT_ADDITIVE_RATIO)
        culprits += tuple(name for name in group if name not in culprits)
        state.damages = raised(state.damages, group, factor)
        found = assign(state.tables, limit, state.damages)
        if found is None or not found.quantized:
            return found, culprits, None
        joint = workshop.joint(found.quantized)
    return found, culprits, joint


def _own(damages: Mapping[str, Mapping[str, float]], found: Assigned) -> dict[str, float]:
    """The damage of each quantized region in the precision that it has."""
    return {name: damages[name][found.precisions[name]] for name in found.quantized}
