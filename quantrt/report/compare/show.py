# SPDX-License-Identifier: Apache-2.0
"""A comparison as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from quantrt.report.compare.limits import limits_text
from quantrt.report.layer_errors.show import WORST, show_three_ways
from quantrt.report.quantities import db_text, error_text
from quantrt.report.tables import heading, show, table, verdict

__all__ = ["show_comparison"]


def show_comparison(data: Mapping[str, Any], *, every: bool = False) -> None:
    """The comparison as tables, ending with PASSED or FAILED.

    Args:
        every: all layers, in the order they run; otherwise the worst.
    """
    show(heading(f"{data['subject']} against {data['reference']}, {data['samples']} samples"))
    columns = ("output", "max abs", "cosine", "SQNR dB", "")
    rows = [
        (
            *_cells(row),
            row["skipped"] or ("ok" if row["passed"] else "FAILED: " + ", ".join(row["violations"])),
        )
        for row in data["outputs"]
    ]
    show(table(columns, rows, fold=("output", "")))
    if data["layers"] is not None:
        _show_layers(data["layers"], every=every)
    if data["three_way"] is not None:
        show_three_ways(data["three_way"], every=every)
    show(*(f"note: {note}" for note in data["notes"]))
    compared = sum(row["skipped"] is None for row in data["outputs"])
    limits = ", ".join(limits_text(data["limits"]))
    show(
        "",
        verdict(data["passed"], f"{compared} of {len(data['outputs'])} outputs compared, limits: {limits}"),
    )


def _show_layers(layers: Sequence[Mapping[str, Any]], *, every: bool) -> None:
    """Tensors that both have; unless all are asked for, those with the least SQNR."""
    rows = list(layers) if every else sorted(layers, key=lambda row: _badness(row["sqnr_db"]))[:WORST]
    inner = [(row["op_type"], *_cells(row)) for row in rows]
    columns = ("operator", "tensor", "max abs", "cosine", "SQNR dB")
    show("", heading(f"{len(rows)} of {len(layers)} tensors inside" + ("" if every else ", the worst first")))
    show(table(columns, inner, left=("operator",), fold=("tensor",)))
    if len(rows) < len(layers):
        show(f"and {len(layers) - len(rows)} more, which are closer: --all shows every tensor")


def _badness(sqnr_db: float) -> float:
    """For sorting: NaN first."""
    return -math.inf if math.isnan(sqnr_db) else sqnr_db


def _cells(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    if row.get("skipped"):
        return (row["name"], "-", "-", "-")
    return (row["name"], error_text(row["max_abs"]), f"{row['cosine']:.6f}", db_text(row["sqnr_db"]))
