# SPDX-License-Identifier: Apache-2.0
"""How the ranges of two calibrations of one model differ, and what each costs on the data of the other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantrt.calibrate.ranges.ranges import choose_range, range_noise_ratio
from quantrt.calibrate.stats import Stats, TensorStats
from quantrt.config import CalibrationConfig
from quantrt.errors import DataError
from quantrt.report.quantities import db_text
from quantrt.report.ranges.file import GRID
from quantrt.report.tables import facts, heading, show, table

__all__ = ["describe_diff", "show_diff"]

SHOWN = 20
"""Tensors that are shown without being asked for all."""


def describe_diff(
    first: Stats, second: Stats, paths: tuple[Path, Path], config: CalibrationConfig
) -> dict[str, Any]:
    """JSON-ready facts: per tensor both ranges on an 8-bit grid, and the first's cost on the second's data.

    "cost_db" is how much more noise the data of the second file have on the range of the first than on their
    own; the tensors come in its order.

    Raises:
        DataError: the files are of different graphs, or have no tensor in common.
    """
    if first.fingerprint.graph != second.fingerprint.graph:
        raise DataError(
            f"cannot compare the ranges of '{paths[0]}' and '{paths[1]}': they are of two models",
            got=f"graph {second.fingerprint.graph[:12]}",
            expected=f"graph {first.fingerprint.graph[:12]}",
            hint="`quantrt inspect` on both, which says of what model they are",
        )
    names = [name for name in first.tensors if name in second.tensors]
    if not names:
        raise DataError(f"'{paths[0]}' and '{paths[1]}' have no tensor in common")
    rows = [_row(name, first.tensors[name], second.tensors[name], config) for name in names]
    return {
        "kind": "ranges diff",
        "first": _side(first, paths[0]),
        "second": _side(second, paths[1]),
        "same_weights": first.fingerprint.weights == second.fingerprint.weights,
        "same_data": first.data_hash == second.data_hash,
        "method": config.method,
        "only_first": sorted(first.tensors.keys() - second.tensors.keys()),
        "only_second": sorted(second.tensors.keys() - first.tensors.keys()),
        "tensors": sorted(rows, key=lambda row: -row["cost_db"]),
    }


def show_diff(data: Mapping[str, Any], *, layers: bool) -> None:
    """The differences as tables; with `layers` every tensor."""
    first, second = data["first"], data["second"]
    rows = data["tensors"]
    changed = [row for row in rows if row["first"] != row["second"]]
    pairs = [
        ("first", f"{first['path']}, {first['samples']} samples"),
        ("second", f"{second['path']}, {second['samples']} samples"),
        ("tensors", f"{len(changed)} of {len(rows)} have other ranges"),
    ]
    if data["same_data"]:
        pairs.append(("note", "both are of the same samples"))
    if not data["same_weights"]:
        pairs.append(("note", "the weights of the two models differ"))
    pairs += [
        ("note", f"{len(data[f'only_{side}'])} tensors are in the {side} file alone")
        for side in ("first", "second")
        if data[f"only_{side}"]
    ]
    show(heading("ranges of two calibrations"), facts(pairs))
    if not changed:
        return
    kept = changed if layers else changed[:SHOWN]
    cells = [
        (row["name"], _range_text(row["first"]), _range_text(row["second"]), db_text(row["cost_db"]))
        for row in kept
    ]
    show("", table(("tensor", "first", "second", "cost dB"), cells, fold=("tensor",)))
    show("cost: noise of the second file's data on the first file's range, over that on their own")
    if len(kept) < len(changed):
        show(f"and {len(changed) - len(kept)} more: --layers lists all")


def _side(stats: Stats, path: Path) -> dict[str, Any]:
    return {"path": str(path), "samples": stats.samples, "data_hash": stats.data_hash}


def _row(name: str, first: TensorStats, second: TensorStats, config: CalibrationConfig) -> dict[str, Any]:
    one, other = choose_range(first, GRID, config), choose_range(second, GRID, config)
    borrowed = range_noise_ratio(second, one.lo, one.hi, GRID)
    return {
        "name": name,
        "first": {"lo": one.lo, "hi": one.hi, "method": one.method},
        "second": {"lo": other.lo, "hi": other.hi, "method": other.method},
        "cost_db": _cost_db(borrowed, other.error_ratio),
    }


def _cost_db(borrowed_ratio: float, own_ratio: float) -> float:
    """Of noise over noise; 0 for a tensor without any."""
    if borrowed_ratio <= 0 or own_ratio <= 0:
        return 0.0
    return 10 * math.log10(borrowed_ratio / own_ratio)


def _range_text(row: Mapping[str, Any]) -> str:
    return f"{row['lo']:.4g} .. {row['hi']:.4g}"
