# SPDX-License-Identifier: Apache-2.0
"""From tables and a limit to a precision for every region, with the reason for each that stays float."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quantrt.assign.solve import Boundary, Problem, solve
from quantrt.assign.tables.cost_model import CostModel
from quantrt.assign.tables.noise_limit import noise_limit
from quantrt.assign.tables.region import FLOAT
from quantrt.assign.tables.tables import Tables
from quantrt.errors import DataError

__all__ = [
    "Assigned",
    "assign",
    "assign_within_drop",
    "assign_within_size",
    "assign_within_time",
    "pareto_front",
    "uniform",
]

DECADES = 4
"""Of noise below that of everything quantized, which a front looks at."""


@dataclass(frozen=True)
class Assigned:
    """A precision for every region.

    Attributes:
        precisions: by region.
        reasons: of the regions that stay float, one phrase each.
        predicted_ms: time of one run.
        noise_ratio: the sum of the damages.
    """

    precisions: Mapping[str, str]
    reasons: Mapping[str, str]
    predicted_ms: float
    noise_ratio: float

    @property
    def quantized(self) -> tuple[str, ...]:
        """The regions that are not float."""
        return tuple(name for name, precision in self.precisions.items() if precision != FLOAT)


def assign(
    tables: Tables, limit: float, damages: Mapping[str, Mapping[str, float]] | None = None
) -> Assigned | None:
    """The fastest assignment whose damages sum to no more than a limit; None where there is none.

    Args:
        limit: as a noise ratio; infinite for the fastest whatever the damage, which needs no damages.
        damages: in place of those of the tables.

    Raises:
        DataError: the tables have no times, or a damage is missing.
    """
    rows = _damage_rows(tables, limit, damages)
    return _solved(tables, Problem(_time_rows(tables), rows, limit, _boundaries(tables)), rows)


def assign_within_drop(tables: Tables, max_drop_ratio: float) -> Assigned | None:
    """The fastest assignment that loses no more of the metric, by the engines measured so far.

    Raises:
        DataError: as for `assign`, or too little was measured to say how much noise that allows.
    """
    is_bounded = all(
        one.drop_ratio is None or one.drop_ratio <= max_drop_ratio or one.noise_ratio is not None
        for one in tables.engines
    )
    if not tables.points or not is_bounded:
        raise DataError(
            f"the tables do not tell how much noise a drop of {max_drop_ratio:g} allows",
            got="an engine beyond it whose noise is not known" if tables.points else "no measured engine",
            hint="quantrt build ... --tables FILE.json measures both, and goes on where it stopped",
        )
    return assign(tables, noise_limit(tables.points, tables.metric, max_drop_ratio))


def assign_within_time(tables: Tables, limit_ms: float) -> Assigned | None:
    """The assignment of least damage that takes no more than a time; None where there is none.

    Raises:
        DataError: as for `assign`.
    """
    rows = _damage_rows(tables, 0.0)
    swapped = [Boundary(one.first, one.second, limited=one.costs) for one in _boundaries(tables)]
    return _solved(tables, Problem(rows, _time_rows(tables), limit_ms, swapped), rows)


def assign_within_size(tables: Tables, limit_bytes: float) -> Assigned | None:
    """The assignment of least damage whose model has no more bytes; None where there is none.

    Raises:
        DataError: as for `assign`, or the tables know no sizes.
    """
    sizes = tables.sizes
    if sizes is None:
        raise DataError(
            "the tables do not know how large regions are", hint="quantrt build ... --tables FILE.json"
        )
    rows = _damage_rows(tables, 0.0)
    limited = [
        {kind: float(sizes.bytes_of[name][kind]) for kind in row}
        for name, row in zip(_names(tables), rows, strict=True)
    ]
    room = limit_bytes - sizes.rest_bytes
    return None if room < 0 else _solved(tables, Problem(rows, limited, room), rows)


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


def uniform(tables: Tables, precision: str) -> dict[str, str]:
    """Every region in one precision."""
    return dict.fromkeys(_names(tables), precision)


def _names(tables: Tables) -> list[str]:
    return [region.name for region in tables.regions]


def _costs(tables: Tables) -> CostModel:
    if tables.costs is None:
        raise DataError(
            "cannot assign precisions by tables without times", hint="tables of `quantrt build` on the device"
        )
    return tables.costs


def _time_rows(tables: Tables) -> list[Mapping[str, float]]:
    times_ms = _costs(tables).times_ms
    return [times_ms[name] for name in _names(tables)]


def _boundaries(tables: Tables) -> tuple[Boundary, ...]:
    return _costs(tables).boundaries(_names(tables))


def _damage_rows(
    tables: Tables, limit: float, damages: Mapping[str, Mapping[str, float]] | None = None
) -> list[dict[str, float]]:
    known = tables.damages if damages is None else damages
    return [
        _damages(name, times, known.get(name, {}), limit)
        for name, times in zip(_names(tables), _time_rows(tables), strict=True)
    ]


def _damages(
    name: str, precisions: Iterable[str], row: Mapping[str, float], limit: float
) -> dict[str, float]:
    """Of one region by precision; not finite counts as infinite. Without a limit none are needed."""
    found = {}
    for precision in precisions:
        damage = row.get(precision, 0.0 if precision == FLOAT or math.isinf(limit) else None)
        if damage is None:
            raise DataError(
                f"the tables have no damage of '{name}' in {precision}",
                hint="quantrt build ... --tables FILE.json goes on where an earlier one stopped",
            )
        found[precision] = damage if math.isfinite(damage) else math.inf
    return found


def _solved(tables: Tables, problem: Problem, damages: Sequence[Mapping[str, float]]) -> Assigned | None:
    """The solution of a problem, with a reason for every region that is float in it."""
    found = solve(problem)
    if found is None:
        return None
    names, times, boundaries = _names(tables), _time_rows(tables), _boundaries(tables)
    precisions = dict(zip(names, found.precisions, strict=True))
    total = sum(row[precision] for row, precision in zip(damages, found.precisions, strict=True))
    reasons = {
        name: _why_float(times[place], damages[place], place, found.precisions, boundaries)
        for place, name in enumerate(names)
        if precisions[name] == FLOAT
    }
    return Assigned(precisions, reasons, _costs(tables).predict_ms(precisions), total)


def _why_float(
    times: Mapping[str, float],
    damages: Mapping[str, float],
    place: int,
    chosen: Sequence[str],
    boundaries: Sequence[Boundary],
) -> str:
    """Why a region is float: the best other precision would not be faster here, or its damage is too much."""
    others = [precision for precision in times if precision != FLOAT]
    gains = {
        precision: times[FLOAT]
        - times[precision]
        - sum(
            _change(one, place, precision, chosen) for one in boundaries if place in (one.first, one.second)
        )
        for precision in others
    }
    best = max(gains, key=lambda precision: gains[precision], default=None)
    if best is None:
        return "kept float: it has no other precision"
    if gains[best] <= 0.0:
        return f"kept float: not faster in {best} here ({-gains[best] * 1e3:.1f} us slower, as predicted)"
    damage = damages[best]
    if not math.isfinite(damage):
        return f"kept float: {best} makes the outputs NaN or infinite"
    return (
        f"kept float: damage, in {best} it alone makes noise {damage:.1e} of the outputs' power "
        f"for {gains[best] * 1e3:.1f} us"
    )


def _change(boundary: Boundary, place: int, precision: str, chosen: Sequence[str]) -> float:
    """What a boundary costs more when one of its regions gets another precision."""
    pair = [chosen[boundary.first], chosen[boundary.second]]
    before = boundary.costs.get((pair[0], pair[1]), 0.0)
    pair[0 if place == boundary.first else 1] = precision
    return boundary.costs.get((pair[0], pair[1]), 0.0) - before
