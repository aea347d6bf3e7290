# SPDX-License-Identifier: Apache-2.0
"""Which precision each region gets: an integer program over times and damages, solved by HiGHS.

    least   sum_r cost[r, x_r] + sum_(r,s) boundary[r, s, x_r, x_s]
    with    sum_r limited[r, x_r] + (the same of boundaries) <= limit     one x_r of those that r may have

Cost and what is limited are any two of time, damage and size. A boundary is a pair of regions between which a
tensor is converted when their precisions differ. It is linearized by flows: y[p, q] >= 0 with the sums over q
equal to [x_r = p] and the sums over p equal to [x_s = q], which is exact for integer x, and tight (Wainwright
and Jordan 2008, "Graphical Models, Exponential Families, and Variational Inference", section 4.1: the local
polytope).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from quantrt.assign.on_stderr import prints_on_stderr
from quantrt.errors import InternalError

__all__ = ["Boundary", "Problem", "Solution", "solve"]

GAP_RATIO = 1e-3
"""Proven distance from the best: far below what times can be measured to."""

TIME_LIMIT_S = 20.0

Row = Mapping[str, float]
Pairs = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Boundary:
    """What it costs that two regions have the precisions they have.

    Attributes:
        first, second: places of the regions.
        costs: by (precision of the first, precision of the second); pairs that are left out cost nothing.
        limited: the same for what is limited.
    """

    first: int
    second: int
    costs: Pairs = field(default_factory=dict)
    limited: Pairs = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """What is to be chosen.

    Attributes:
        costs: for each region, by each precision that it may have.
        limited: for each region, by the same precisions, 0 or more; infinite where it may not be had.
        limit: of their sum.
        boundaries: each with costs of 0 or more.
    """

    costs: Sequence[Row]
    limited: Sequence[Row]
    limit: float
    boundaries: Sequence[Boundary] = field(default_factory=tuple)


@dataclass(frozen=True)
class Solution:
    """What was chosen.

    Attributes:
        precisions: one per region.
        cost, limited: their sums, boundaries in the cost.
    """

    precisions: tuple[str, ...]
    cost: float
    limited: float


def solve(problem: Problem) -> Solution | None:
    """The cheapest choice within the limit; None where there is none.

    Raises:
        InternalError: a cost is NaN, or HiGHS ran out of time before it found any choice.
    """
    program = _Program(problem)
    if program.has_empty_region:
        return None
    with prints_on_stderr():
        result = milp(
            program.costs,
            constraints=LinearConstraint(program.matrix, program.least, program.most),
            integrality=program.integrality,
            bounds=Bounds(0.0, 1.0),
            options={"mip_rel_gap": GAP_RATIO, "time_limit": TIME_LIMIT_S},
        )
    if result.status == 2:  # infeasible
        return None
    if result.x is None:
        raise InternalError("no assignment was found", got=str(result.message))
    return _solution(problem, program.precisions(result.x))


def _solution(problem: Problem, chosen: tuple[str, ...]) -> Solution:
    pairs = [((chosen[one.first], chosen[one.second]), one) for one in problem.boundaries]
    costs = [row[precision] for row, precision in zip(problem.costs, chosen, strict=True)]
    limited = [row[precision] for row, precision in zip(problem.limited, chosen, strict=True)]
    return Solution(
        chosen,
        sum(costs) + sum(boundary.costs.get(pair, 0.0) for pair, boundary in pairs),
        sum(limited) + sum(boundary.limited.get(pair, 0.0) for pair, boundary in pairs),
    )


def _is_within(amount: float, limit: float) -> bool:
    """Whether one choice leaves any room: HiGHS takes a millionth for nothing, which a limit of 0 is not."""
    return bool(np.isfinite(amount)) and amount <= limit


class _Program:
    """The problem as matrices: first the columns of the regions, then those of the flows."""

    def __init__(self, problem: Problem) -> None:
        self._columns: dict[tuple[int, str], int] = {}
        self._entries: list[tuple[int, int, float]] = []  # row, column, value
        self._bounds: list[tuple[float, float]] = []
        costs: list[float] = []
        for number, (row, limited) in enumerate(zip(problem.costs, problem.limited, strict=True)):
            for precision, cost in row.items():
                if np.isnan(cost) or np.isnan(limited[precision]):
                    raise InternalError(f"region {number} in {precision} has no cost", got="NaN")
                if np.isfinite(cost) and _is_within(limited[precision], problem.limit):
                    self._columns[number, precision] = len(costs)
                    costs.append(cost)
        self.has_empty_region = len({number for number, _ in self._columns}) < len(problem.costs)
        self._choices: list[list[tuple[str, int]]] = [[] for _ in problem.costs]
        for (number, precision), column in self._columns.items():
            self._choices[number].append((precision, column))
        self._count = len(costs)
        for choices in self._choices:
            self._row([(column, 1.0) for _, column in choices], 1.0, 1.0)
        entries = [
            (column, problem.limited[number][name]) for (number, name), column in self._columns.items()
        ]
        for boundary in problem.boundaries:
            flows, theirs = self._flows(boundary, len(costs))
            entries += [(len(costs) + place, amount) for place, amount in enumerate(theirs)]
            costs += flows
        self._limit(entries, problem.limit)
        self.costs = np.array(costs)
        self.integrality = (np.arange(len(costs)) < self._count).astype(np.int8)
        self.least = np.array([least for least, _ in self._bounds])
        self.most = np.array([most for _, most in self._bounds])

    @property
    def matrix(self) -> csr_array:
        """The constraints, one per row."""
        rows, columns, values = zip(*self._entries, strict=True)
        return csr_array((values, (rows, columns)), shape=(len(self._bounds), len(self.costs)))

    def precisions(self, x: np.ndarray) -> tuple[str, ...]:
        """What a solution chooses."""
        return tuple(max(choices, key=lambda choice: x[choice[1]])[0] for choices in self._choices)

    def _row(self, entries: list[tuple[int, float]], least: float, most: float) -> None:
        self._entries += [(len(self._bounds), column, value) for column, value in entries]
        self._bounds.append((least, most))

    def _limit(self, entries: list[tuple[int, float]], limit: float) -> None:
        """Scaled to 1: HiGHS looks at absolute differences of a millionth."""
        if np.isfinite(limit):
            scale = limit if limit > 0 else 1.0
            row = [(column, amount / scale) for column, amount in entries if amount]
            self._row(row, -np.inf, limit / scale)

    def _flows(self, boundary: Boundary, first_column: int) -> tuple[list[float], list[float]]:
        """The columns of one boundary: what they cost, and what they take of what is limited."""
        ones, others = self._choices[boundary.first], self._choices[boundary.second]
        pairs = [(p, q) for p, _ in ones for q, _ in others]
        costs = [boundary.costs.get(pair, 0.0) for pair in pairs]
        limited = [boundary.limited.get(pair, 0.0) for pair in pairs]
        if not any(costs) and not any(limited):
            return [], []
        width = len(others)
        for place, (_, column) in enumerate(ones):
            flows = [(first_column + place * width + other, 1.0) for other in range(width)]
            self._row([*flows, (column, -1.0)], 0.0, 0.0)
        for other, (_, column) in enumerate(others):
            flows = [(first_column + place * width + other, 1.0) for place in range(len(ones))]
            self._row([*flows, (column, -1.0)], 0.0, 0.0)
        return costs, limited
