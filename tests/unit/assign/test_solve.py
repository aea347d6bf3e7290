# SPDX-License-Identifier: Apache-2.0
"""The integer program against every assignment there is."""

import itertools
import math

import numpy as np
import pytest

from quantrt.assign.solve import GAP_RATIO, Boundary, Problem, solve
from quantrt.errors import InternalError

NAMES = ("fp32", "fp16", "fp8", "int8")


def random_problem(seed: int, *, regions: int = 6, precisions: int = 3, boundaries: int = 7) -> Problem:
    random = np.random.default_rng(seed)
    names = NAMES[-precisions:]
    costs = [{name: float(random.uniform(1, 5)) for name in names} for _ in range(regions)]
    limited = [{name: float(random.uniform(0, 1)) for name in names} for _ in range(regions)]
    pairs = []
    for _ in range(boundaries):
        first, second = (int(place) for place in random.choice(regions, 2, replace=False))
        kinds = [(p, q) for p in names for q in names if p != q]
        pairs.append(
            Boundary(
                first,
                second,
                {kind: float(random.uniform(0, 2)) for kind in kinds},
                {kind: float(random.uniform(0, 0.2)) for kind in kinds if random.random() < 0.5},
            )
        )
    return Problem(costs, limited, float(random.uniform(0.3, 0.6)) * regions, pairs)


def value(problem: Problem, chosen: tuple[str, ...], what: str) -> float:
    rows = getattr(problem, what)
    total = sum(row[name] for row, name in zip(rows, chosen, strict=True))
    return total + sum(
        getattr(one, what).get((chosen[one.first], chosen[one.second]), 0.0) for one in problem.boundaries
    )


def best_of_all(problem: Problem) -> float:
    every = itertools.product(*(row.keys() for row in problem.costs))
    inside = [chosen for chosen in every if value(problem, chosen, "limited") <= problem.limit]
    return min((value(problem, chosen, "costs") for chosen in inside), default=math.inf)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_cheaper_is_within_the_limit(seed):
    problem = random_problem(seed)
    best, found = best_of_all(problem), solve(problem)
    if math.isinf(best):
        assert found is None
        return
    assert found is not None
    assert found.limited <= problem.limit * (1 + 1e-6)
    assert best * (1 - 1e-9) <= found.cost <= best * (1 + GAP_RATIO)
    assert found.cost == pytest.approx(value(problem, found.precisions, "costs"))
    assert found.limited == pytest.approx(value(problem, found.precisions, "limited"))


def test_tiny_limits_are_kept():
    costs = [{"fp32": 1.0, "int8": 0.5}] * 3
    limited = [{"fp32": 0.0, "int8": damage} for damage in (3e-9, 1e-9, 2e-9)]
    found = solve(Problem(costs, limited, 3.1e-9))
    assert found is not None
    assert found.precisions == ("fp32", "int8", "int8")


@pytest.mark.parametrize("damage", [1e-300, 1e-7, 1e-3])
def test_a_limit_of_nothing_allows_nothing(damage):
    costs = [{"fp32": 1.0, "int8": 0.5}] * 2
    limited = [{"fp32": 0.0, "int8": damage}, {"fp32": 0.0, "int8": 0.0}]
    assert solve(Problem(costs, limited, 0.0)).precisions == ("fp32", "int8")


def test_a_boundary_can_be_worth_more_than_a_faster_region():
    costs = [{"fp32": 1.0, "int8": 0.1}, {"fp32": 1.0, "int8": 0.8}, {"fp32": 1.0, "int8": 0.1}]
    limited = [{"fp32": 0.0, "int8": 0.0}, {"fp32": 0.0, "int8": 1.0}, {"fp32": 0.0, "int8": 0.0}]
    wall = {("fp32", "int8"): 1.0, ("int8", "fp32"): 1.0}
    boundaries = (Boundary(0, 1, wall), Boundary(1, 2, wall))
    assert solve(Problem(costs, limited, 1.0, boundaries)).precisions == ("int8", "int8", "int8")
    assert solve(Problem(costs, limited, 0.5, boundaries)).precisions == ("fp32", "fp32", "fp32")
    assert solve(Problem(costs, limited, 0.5)).precisions == ("int8", "fp32", "int8")


def test_what_is_infinite_is_not_taken():
    problem = Problem([{"fp32": 2.0, "int8": 1.0}], [{"fp32": 0.0, "int8": math.inf}], math.inf)
    assert solve(problem).precisions == ("fp32",)


def test_no_assignment_is_none():
    assert solve(Problem([{"int8": 1.0}], [{"int8": 1.0}], 0.5)) is None
    assert solve(Problem([{"int8": 1.0}], [{"int8": math.inf}], 0.5)) is None


def test_a_nan_is_an_error():
    with pytest.raises(InternalError, match="region 0 in int8 has no cost"):
        solve(Problem([{"int8": math.nan}], [{"int8": 0.0}], 1.0))
