# SPDX-License-Identifier: Apache-2.0
"""Which regions make more noise together than their damages add up to, by leaving parts out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from quantrt.assign.tables.region import FLOAT

__all__ = ["excess_ratio", "find_culprits", "raised"]

SHARE = 0.5
"""Of the excess: what makes this much of it is to blame."""

MOST_MEASURED = 64
"""Groups that are measured."""


def excess_ratio(names: Sequence[str], damages: Mapping[str, float], joint: float) -> float:
    """The noise of regions together over the sum of their damages; 1 where damages add up, inf for a NaN."""
    total = sum(damages[name] for name in names)
    if math.isnan(joint):
        return math.inf
    return joint / total if total else (1.0 if not joint else float("inf"))


def find_culprits(
    names: Sequence[str], damages: Mapping[str, float], measure: Callable[[Sequence[str]], float]
) -> tuple[str, ...]:
    """The smallest group found that makes at least half of the excess of all.

    Parts are left out, first halves and then ever smaller ones, as long as what remains does it without them
    (Zeller and Hildebrandt 2002, "Simplifying and Isolating Failure-Inducing Input").

    Args:
        names: in topological order; they are more noise together than apart.
        measure: the noise of some of them together; asked MOST_MEASURED times at most.
    """
    count = 0

    def excess_of(part: Sequence[str]) -> float:
        nonlocal count
        count += 1
        joint = measure(part)
        # What makes a NaN is as bad as can be.
        return math.inf if math.isnan(joint) else joint - sum(damages[name] for name in part)

    group = tuple(names)
    least = SHARE * excess_of(group)
    size = len(group) // 2
    while size >= 1 and len(group) > 1:
        start = 0
        while start < len(group) and len(group) > 1 and count < MOST_MEASURED:
            rest = group[:start] + group[start + size :]
            if rest and excess_of(rest) >= least:
                group = rest
            else:
                start += size
        size = min(size, len(group)) // 2
    return group


def raised(
    damages: Mapping[str, Mapping[str, float]], culprits: Collection[str], ratio: float
) -> dict[str, Mapping[str, float]]:
    """The damages with those of the culprits multiplied, in any precision but float.

    Args:
        damages: by region and precision.
        ratio: an infinite one makes them infinite.
    """
    return {
        name: {kind: x if kind == FLOAT else _times(x, ratio) for kind, x in row.items()}
        if name in culprits
        else row
        for name, row in damages.items()
    }


def _times(damage: float, ratio: float) -> float:
    return math.inf if math.isinf(ratio) else damage * ratio
