# SPDX-License-Identifier: Apache-2.0
"""Which regions make more noise together than their damages add up to, by halving."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

__all__ = ["excess_ratio", "find_culprits", "raised"]

SHARE = 0.5
"""Of the excess of a group: a half with more of it than this is looked into."""


def excess_ratio(names: Sequence[str], damages: Mapping[str, float], joint: float) -> float:
    """The noise of regions together over the sum of their damages; 1 where damages add up, inf for a NaN."""
    total = sum(damages[name] for name in names)
    if math.isnan(joint):
        return math.inf
    return joint / total if total else (1.0 if not joint else float("inf"))


def find_culprits(
    names: Sequence[str],
    damages: Mapping[str, float],
    measure: Callable[[Sequence[str]], float],
    *,
    least: int = 1,
) -> tuple[str, ...]:
    """The smallest group found that makes at least half of the excess.

    Args:
        names: in topological order; they are more noise together than apart.
        measure: the noise of some of them together.
        least: groups of so many are not halved.
    """

    def excess_of(part: Sequence[str]) -> float:
        joint = measure(part)
        # What makes a NaN is as bad as can be.
        return math.inf if math.isnan(joint) else joint - sum(damages[name] for name in part)

    group = tuple(names)
    excess = excess_of(group)
    while len(group) > max(least, 1):
        middle = len(group) // 2
        halves = [group[:middle], group[middle:]]
        excesses = [excess_of(half) for half in halves]
        worst = max(range(2), key=lambda place: excesses[place])
        if excesses[worst] < SHARE * excess:
            break  # the halves do it together
        group, excess = halves[worst], excesses[worst]
    return group


def raised(damages: Mapping[str, float], culprits: Sequence[str], ratio: float) -> dict[str, float]:
    """The damages with those of the culprits multiplied; an infinite ratio makes them infinite."""
    worse = {name: damages[name] * ratio if ratio < math.inf else math.inf for name in culprits}
    return {name: worse.get(name, damage) for name, damage in damages.items()}
