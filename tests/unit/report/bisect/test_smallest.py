# SPDX-License-Identifier: Apache-2.0
"""What is left fails, and no item of it can be spared; whatever the failure depends on."""

from collections.abc import Sequence

import numpy as np
import pytest

from quantrt.report.bisect.smallest import smallest

CULPRITS = [{0}, {99}, {41}, {3, 80}, {10, 11, 12}, {0, 50, 99}]


@pytest.mark.parametrize("culprits", CULPRITS, ids=str)
def test_exactly_the_culprits_are_left(culprits: set[int]):
    asked: list[int] = []

    def fails(part: Sequence[int]) -> bool:
        asked.append(len(part))
        return culprits <= set(part)

    assert smallest(range(100), fails) == sorted(culprits)
    assert len(asked) < 100, "far fewer runs than there are parts"


def test_a_failure_that_is_not_monotone_ends_in_something_minimal():
    """It also needs an odd number of items: taking one of them away hides it."""

    def fails(part: Sequence[int]) -> bool:
        return 7 in part and len(part) % 2 == 1

    assert smallest(range(31), fails) == [7]


def test_whatever_fails_the_result_is_minimal(rng: np.random.Generator):
    for _ in range(20):
        needed = [frozenset(rng.choice(24, 3, replace=False).tolist()) for _ in range(2)]

        def fails(part: Sequence[int], needed: list[frozenset[int]] = needed) -> bool:
            return any(group <= set(part) for group in needed)

        found = smallest(range(24), fails)
        assert fails(found)
        assert not any(fails([item for item in found if item != gone]) for gone in found)


def test_nothing_is_asked_twice():
    asked: list[tuple[int, ...]] = []

    def fails(part: Sequence[int]) -> bool:
        asked.append(tuple(part))
        return {2, 5, 9} <= set(part)

    smallest(range(12), fails)
    assert len(asked) == len(set(asked))
    assert () not in asked
