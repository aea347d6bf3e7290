# SPDX-License-Identifier: Apache-2.0
"""The assignments of which none is both faster and less damaged, from saved tables."""

from __future__ import annotations

import math

import numpy as np

from quantrt.assign.assignment.assignment import Assigned, assign
from quantrt.assign.tables.tables import Tables

__all__ = ["pareto_front"]

DECADES = 4
"""Of noise below that of everything quantized, which are looked at."""


def pareto_front(tables: Tables, points: int) -> tuple[Assigned, ...]:
    """So many assignments at most, the fastest first; the last is the one with everything float.

    Raises:
        DataError: the tables lack times or damages.
    """
    damages = [max(row.values(), default=0.0) for row in tables.damages.values()]
    total = sum(damage for damage in damages if math.isfinite(damage))
    limits = [] if not total else np.geomspace(total, total / 10**DECADES, max(points - 1, 1)).tolist()
    found: list[Assigned] = []
    for limit in [*limits, 0.0]:
        one = assign(tables, limit)
        if one is None or (found and one.noise_ratio >= found[-1].noise_ratio):
            continue
        found.append(one)
    return tuple(found)
