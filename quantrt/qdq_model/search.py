# SPDX-License-Identifier: Apache-2.0
"""Which layers to leave float so that a Q/DQ model is inside an accuracy budget.

The fewest operations in floats that leave no more noise than the budget allows, by an integer program; then
the file of it is judged by the metric, which corrects what is known: how much noise the budget allows, and
which regions make more noise together than apart. Nothing is timed: what the file is for may not be here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from quantrt.assign.assignment.together import Together, choose_together
from quantrt.assign.solve import Problem, solve
from quantrt.assign.tables.noise_limit import NoisePoint, closest_limit, next_limit
from quantrt.assign.tables.region import FLOAT
from quantrt.qdq_model.judged import Judged

__all__ = ["CODES", "Round", "Searched", "Workshop", "or_inf", "search"]

CODES = "int8"
"""The precision of what is not left float, as damages are called."""

BETWEEN = (0.5, 0.5, 1.0)
"""Parts of the way, in decibels, from a limit whose layers were tried to what was outside the budget."""

NONE_LEFT = "no layer can be 8-bit within the noise that the budget allows"

Damages = Mapping[str, Mapping[str, float]]


class Workshop(Protocol):
    """What the rounds need done."""

    def joint(self, names: Collection[str]) -> float:
        """Noise of the outputs with these regions quantized together."""

    def make(self, left_float: Collection[str]) -> Judged:
        """Make the model with these regions float, and judge its file."""


@dataclass(frozen=True)
class Round:
    """One file that was judged.

    Attributes:
        limit: of the noise, which was solved for.
        noise_ratio: of the outputs, its regions quantized together; None where none is.
        culprits: regions that made more noise together than apart, found on the way.
        judged: the model, and what it loses.
    """

    limit: float
    noise_ratio: float | None
    culprits: tuple[str, ...]
    judged: Judged


@dataclass(frozen=True)
class Searched:
    """What came of it.

    Attributes:
        rounds: in their order.
        reason: why no further round was made, one sentence.
    """

    rounds: tuple[Round, ...]
    reason: str


@dataclass(frozen=True)
class _Choice:
    """A precision for every region."""

    precisions: Mapping[str, str]

    @property
    def quantized(self) -> tuple[str, ...]:
        """The regions in codes."""
        return tuple(name for name, precision in self.precisions.items() if precision != FLOAT)

    @property
    def left_float(self) -> tuple[str, ...]:
        """The others."""
        return tuple(name for name, precision in self.precisions.items() if precision == FLOAT)


@dataclass
class _State:
    """What changes from round to round."""

    damages: Damages
    shares: Mapping[str, float]
    points: list[NoisePoint]
    rounds: list[Round] = field(default_factory=list)
    tried: set[tuple[str, ...]] = field(default_factory=set)


def search(
    whole: Judged,
    damages: Mapping[str, float],
    operations: Mapping[str, int],
    workshop: Workshop,
    *,
    metric: str,
    max_drop_ratio: float,
    most_rounds: int,
    on_round: Callable[[int], None] = lambda done: None,
) -> Searched:
    """Files with ever more or fewer layers float, the first of them after one that is outside the budget.

    Args:
        whole: everything that can be is in codes, and that is outside the budget.
        damages: noise in the outputs that each region makes alone.
        operations: of each region.
        on_round: called after each with its number.
    """
    rows = {name: {FLOAT: 0.0, CODES: damage} for name, damage in damages.items()}
    point = NoisePoint(workshop.joint(list(damages)), whole.accuracy.drop_ratio)
    state = _State(rows, _shares(operations), [point], tried={tuple(damages)})
    while len(state.rounds) < most_rounds:
        limit, made = _next(state, workshop, metric, max_drop_ratio)
        refusal = _refusal(state, made.found)
        if made.found is None or refusal is not None:
            return Searched(tuple(state.rounds), refusal or NONE_LEFT)
        state.tried.add(made.found.quantized)
        judged = workshop.make(made.found.left_float)
        state.rounds.append(Round(limit, made.noise_ratio, made.culprits, judged))
        state.points.append(NoisePoint(made.noise_ratio or 0.0, judged.accuracy.drop_ratio))
        on_round(len(state.rounds))
    return Searched(tuple(state.rounds), f"{most_rounds} rounds were made")


def _shares(operations: Mapping[str, int]) -> dict[str, float]:
    """Of each region, of the operations of all."""
    total = sum(operations.values())
    return {name: count / total for name, count in operations.items()}


def _refusal(state: _State, found: _Choice | None) -> str | None:
    """Why a choice is not made; None where it is."""
    if found is None or not found.quantized:
        return NONE_LEFT
    if found.quantized in state.tried:
        return "the same layers came out again"
    return None


def _next(
    state: _State, workshop: Workshop, metric: str, max_drop_ratio: float
) -> tuple[float, Together[_Choice]]:
    """What to make next, and the limit of noise it is within.

    The law between noise and metric leads. Where that was made already, it is something between it and what
    was outside the budget.
    """
    last = state.rounds[-1].noise_ratio if state.rounds else None
    is_one_inside = any(one.judged.is_inside for one in state.rounds)
    limit = next_limit(state.points, metric, max_drop_ratio, last, is_one_inside=is_one_inside)
    made = _within(state, workshop, limit)
    closest = closest_limit(state.points, max_drop_ratio)
    for part in BETWEEN if is_one_inside and 0.0 < limit < closest else ():
        if made.found is None or made.found.quantized not in state.tried:
            break
        limit_between = limit ** (1.0 - part) * closest**part
        made, limit = _within(state, workshop, limit_between), limit_between
    return limit, made


def _within(state: _State, workshop: Workshop, limit: float) -> Together[_Choice]:
    made = choose_together(partial(_choose, state.shares), state.damages, workshop.joint, limit)
    state.damages = made.damages
    return made


def _choose(shares: Mapping[str, float], limit: float, damages: Damages) -> _Choice | None:
    """The fewest operations in floats whose damages sum to no more than a limit."""
    names = list(damages)
    found = solve(
        Problem(
            costs=[{FLOAT: shares[name], CODES: 0.0} for name in names],
            limited=[{kind: or_inf(x) for kind, x in damages[name].items()} for name in names],
            limit=limit,
        )
    )
    return None if found is None else _Choice(dict(zip(names, found.precisions, strict=True)))


def or_inf(damage: float) -> float:
    """What is not a number is as bad as can be."""
    return math.inf if math.isnan(damage) else damage
