# SPDX-License-Identifier: Apache-2.0
"""From tables and a limit to a precision for every region, with the reason for each that stays float."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from quantrt.assign.solve import Boundary, Problem, Solution, solve
from quantrt.assign.tables import Tables
from quantrt.errors import DataError

__all__ = ["FLOAT", "Assigned", "assign", "assign_within_time", "uniform"]

FLOAT = "fp32"


@dataclass(frozen=True)
class Assigned:
    """A precision for every region.

    Attributes:
        precisions: by region.
        reasons: of the regions that stay float, one phrase each.
        predicted_ms: time of one run.
        noise_ratio: the sum of the damages.
        gap_ratio: how far from the best it may be.
    """

    precisions: Mapping[str, str]
    reasons: Mapping[str, str]
    predicted_ms: float
    noise_ratio: float
    gap_ratio: float

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
    costs = _times(tables)
    limited = [_damages(tables, damages, name, limit) for name in _names(tables)]
    boundaries = () if tables.costs is None else tables.costs.boundaries(_names(tables))
    found = solve(Problem(costs, limited, limit, boundaries))
    return None if found is None else _assigned(tables, found, limited, boundaries)


def assign_within_time(tables: Tables, limit_ms: float) -> Assigned | None:
    """The assignment of least damage that takes no more than a time; None where there is none.

    Raises:
        DataError: as for `assign`.
    """
    limited = _times(tables)
    damages = [_damages(tables, None, name, 0.0) for name in _names(tables)]
    boundaries = () if tables.costs is None else tables.costs.boundaries(_names(tables))
    swapped = [Boundary(one.first, one.second, limited=one.costs) for one in boundaries]
    found = solve(Problem(damages, limited, limit_ms, swapped))
    return None if found is None else _assigned(tables, found, damages, boundaries)


def uniform(tables: Tables, precision: str) -> dict[str, str]:
    """Every region in one precision."""
    return dict.fromkeys(_names(tables), precision)


def _names(tables: Tables) -> list[str]:
    return [region.name for region in tables.regions]


def _times(tables: Tables) -> list[Mapping[str, float]]:
    if tables.costs is None:
        raise DataError(
            "cannot assign precisions by tables without times", hint="tables of `quantrt build` on the device"
        )
    return [tables.costs.times_ms[name] for name in _names(tables)]


def _damages(
    tables: Tables, given: Mapping[str, Mapping[str, float]] | None, name: str, limit: float
) -> dict[str, float]:
    """Of one region by precision; not finite counts as infinite. Without a limit none are needed."""
    row = (tables.damages if given is None else given).get(name, {})
    found = {}
    for precision in _precisions(tables, name):
        damage = row.get(precision, 0.0 if precision == FLOAT or math.isinf(limit) else None)
        if damage is None:
            raise DataError(
                f"the tables have no damage of '{name}' in {precision}",
                hint="quantrt build ... --tables FILE.json goes on where an earlier one stopped",
            )
        found[precision] = damage if math.isfinite(damage) else math.inf
    return found


def _precisions(tables: Tables, name: str) -> tuple[str, ...]:
    return () if tables.costs is None else tuple(tables.costs.times_ms[name])


def _assigned(
    tables: Tables, found: Solution, damages: list[dict[str, float]], boundaries: tuple[Boundary, ...]
) -> Assigned:
    names = _names(tables)
    precisions = dict(zip(names, found.precisions, strict=True))
    total = sum(row[precision] for row, precision in zip(damages, found.precisions, strict=True))
    reasons = {
        name: _why_float(tables, place, found.precisions, damages, boundaries)
        for place, name in enumerate(names)
        if precisions[name] == FLOAT
    }
    predicted_ms = math.nan if tables.costs is None else tables.costs.predict_ms(precisions)
    return Assigned(precisions, reasons, predicted_ms, total, found.gap_ratio)


def _why_float(
    tables: Tables,
    place: int,
    chosen: tuple[str, ...],
    damages: list[dict[str, float]],
    boundaries: tuple[Boundary, ...],
) -> str:
    """Why a region is float: the best other precision would not be faster here, or its damage is too much."""
    times = _times(tables)[place]
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
    damage = damages[place][best]
    if not math.isfinite(damage):
        return f"kept float: {best} makes the outputs NaN or infinite"
    return (
        f"kept float: damage, in {best} it alone makes noise {damage:.1e} of the outputs' power "
        f"for {gains[best] * 1e3:.1f} us"
    )


def _change(boundary: Boundary, place: int, precision: str, chosen: tuple[str, ...]) -> float:
    """What a boundary costs more when one of its regions gets another precision."""
    pair = [chosen[boundary.first], chosen[boundary.second]]
    before = boundary.costs.get((pair[0], pair[1]), 0.0)
    pair[0 if place == boundary.first else 1] = precision
    return boundary.costs.get((pair[0], pair[1]), 0.0) - before
