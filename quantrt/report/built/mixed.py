# SPDX-License-Identifier: Apache-2.0
"""How the precisions of a mixed engine were found: JSON-ready data, and tables of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from quantrt.assign.assignment.repair import Outcome, Round
from quantrt.assign.tables.region import FLOAT
from quantrt.assign.tables.tables import tables_to_json
from quantrt.report.json_numbers import finite
from quantrt.report.quantities import ms_text
from quantrt.report.tables import facts, heading, show, table

__all__ = ["culprits_table", "mixed_report", "ratio_of_metric", "rounds_table", "show_mixed"]

LEAST_DROP = 1e-3
SHOWN = 8
"""Regions with the most damage that are listed."""


def mixed_report(outcome: Outcome) -> dict[str, Any]:
    """The rounds, why there are no more of them, and the tables that answer for other budgets."""
    tables = outcome.tables
    report = {
        "reason": outcome.reason,
        "library": tables.library,
        "rounds": [_round(one, one is outcome.best) for one in outcome.rounds],
    }
    # Times alone answer for no budget.
    return {**report, "tables": tables_to_json(tables)} if tables.damages or outcome.rounds else report


def show_mixed(report: Mapping[str, Any] | None, *, layers: bool = False) -> None:
    """The rounds and the regions with the most damage; a line where no engine was built.

    Args:
        layers: whether a line is worth it where nothing was tried.
    """
    if report is None:
        return
    if not report["rounds"]:
        if layers:
            show("", facts([("mixed", report["reason"])]))
        return
    show("", heading("Mixed precision"), rounds_table(report))
    worst = culprits_table(report)
    if worst is not None:
        show("", worst)
    show("", facts([("stopped", report["reason"])]))


def rounds_table(report: Mapping[str, Any]) -> Table:
    """A row per engine that was built."""
    columns = (
        "round",
        "8-bit regions",
        "float",
        "noise limit",
        "noise",
        "predicted ms",
        "ms",
        "drop",
        "result",
    )
    rows = [
        (
            str(number),
            str(row["quantized"]),
            str(len(row["float"])),
            _noise_text(row["limit"]),
            _noise_text(row["noise_ratio"]),
            ms_text(row["predicted_ms"]),
            ms_text(row["latency_ms"]),
            _drop_text(row),
            _result_text(row),
        )
        for number, row in enumerate(report["rounds"], start=1)
    ]
    return table(columns, rows, fold=("result",))


def culprits_table(report: Mapping[str, Any]) -> Table | None:
    """The regions with the most damage, and what they are in the engine; None where none was measured."""
    regions = [row for row in report.get("tables", {}).get("regions", ()) if _codes(row) is not None]
    best = next((row for row in report["rounds"] if row["is_best"]), None)
    if not regions or best is None:
        return None
    kept = {row["name"]: row["reason"] for row in best["float"]}
    total = sum(_damage(row) for row in regions if math.isfinite(_damage(row)))
    worst = sorted(regions, key=_damage, reverse=True)[:SHOWN]
    rows = [
        (
            row["name"],
            ", ".join(dict.fromkeys(row["op_types"])),
            f"{_damage(row):.1e}",
            f"{_damage(row) / total:.0%}" if total and math.isfinite(_damage(row)) else "-",
            f"{ms_text(row['time_ms'][FLOAT])} / {ms_text(row['time_ms'][_codes(row)])}",
            "float" if row["name"] in kept else str(_codes(row)),
        )
        for row in worst
    ]
    columns = ("region", "operators", "noise alone", "of all", "ms float / 8 bits", "runs in")
    return table(columns, rows, left=("operators",), fold=("region",))


def ratio_of_metric(drop: float) -> str:
    """A drop: `0.0048`, and `1.2e-05` where four places would not show it."""
    return f"{drop:.4f}" if drop == 0.0 or abs(drop) >= LEAST_DROP else f"{drop:.1e}"


def _codes(row: Mapping[str, Any]) -> str | None:
    """The precision in codes that a region's damage was measured in."""
    return next((precision for precision in row["damage"] if precision != FLOAT), None)


def _damage(row: Mapping[str, Any]) -> float:
    return float(row["damage"][_codes(row)])


def _round(one: Round, is_best: bool) -> dict[str, Any]:
    engine = one.engine
    return {
        "limit": finite(one.limit),
        "predicted_ms": one.assigned.predicted_ms,
        "predicted_noise_ratio": finite(one.assigned.noise_ratio),
        "noise_ratio": finite(engine.noise_ratio),
        "latency_ms": engine.latency_ms,
        "drop_ratio": finite(engine.drop_ratio),
        "is_checked": engine.drop_ratio is not None,
        "quantized": engine.quantized_count,
        "float": [
            {"name": name, "reason": one.assigned.reasons.get(name, "nothing beside it is 8-bit")}
            for name, precision in engine.assignment.items()
            if precision == FLOAT
        ],
        "culprits": list(one.culprits),
        "is_inside": one.is_inside,
        "is_best": is_best,
    }


def _drop_text(row: Mapping[str, Any]) -> str:
    if not row.get("is_checked", True):
        return "-"
    return "inf" if row["drop_ratio"] is None else ratio_of_metric(row["drop_ratio"])


def _result_text(row: Mapping[str, Any]) -> str:
    if not row["quantized"]:
        return "nothing came to be in 8 bits"
    if not row.get("is_checked", True):
        return "not faster, so its drop was not measured"
    text = "inside the budget" if row["is_inside"] else "outside the budget"
    if row["is_best"]:
        text += ", fastest of these"
    if row["culprits"]:
        text += f"; more noise together than apart: {', '.join(row['culprits'])}"
    return text


def _noise_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"
