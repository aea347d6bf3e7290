# SPDX-License-Identifier: Apache-2.0
"""Which regions make more noise together than their damages add up to, by halving."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

__all__ = ["excess_ratio", "find_culprits", "raised"]

SHARE = 0.5
"""Of the excess of a group: a half with more of it than this is looked into."""


def excess_ratio(names: Sequence[str], damages: Mapping[str, float], joint: float) -> float:
    """The noise of regions together over the sum of their damages; 1 where damages add up."""
    total = sum(damages[name] for name in names)
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
    group = tuple(names)
    excess = measure(group) - sum(damages[name] for name in group)
    while len(group) > max(least, 1):
        middle = len(group) // 2
        halves = [group[:middle], group[middle:]]
        excesses = [measure(half) - sum(damages[name] for name in half) for half in halves]
        worst = max(range(2), key=lambda place: excesses[place])
        # A NaN is never found to be less, so what makes one is looked into.
        if excesses[worst] < SHARE * excess:
            break  # the halves do it together
        group, excess = halves[worst], excesses[worst]
    return group


def raised(damages: Mapping[str, float], culprits: Sequence[str], ratio: float) -> dict[str, float]:
    """The damages with those of the culprits multiplied."""
    return {name: damage * (ratio if name in culprits else 1.0) for name, damage in damages.items()}
