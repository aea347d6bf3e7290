# SPDX-License-Identifier: Apache-2.0
"""A build report as tables: the engine beside the float model, and every candidate with what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from quantrt.report.json_numbers import or_infinity
from quantrt.report.quantities import bytes_text, db_text, ms_text, ratio_text
from quantrt.report.tables import table

__all__ = ["candidates_table", "most_text", "reason_text", "verdict_table"]

Report = Mapping[str, Any]


def reason_text(report: Report) -> str:
    """Why the engine is what it is, and on what its accuracy was checked, if it was."""
    verdict = report["verdict"]
    if _row(report, "shipped")["accuracy"] is None:
        return str(verdict["reason"])
    return f"{verdict['reason']} (accuracy checked on {verdict['checked_on']})"


def verdict_table(report: Report, engine_bytes: int, precision_counts: Mapping[str, int]) -> Table:
    """The float model and the engine side by side, as measured in one build.

    Args:
        engine_bytes: size of the engine file.
        precision_counts: layers of the engine by precision.
    """
    shipped, baseline = _row(report, "shipped"), _row(report, "baseline")
    rows = [
        ("runs as", baseline["name"], shipped["name"], ""),
        *_accuracy_rows(shipped),
        _latency_row(baseline, shipped),
        _size_row(report["model"]["file_bytes"], engine_bytes),
        *_layer_rows(precision_counts, None if shipped is baseline else baseline.get("precision", "fp32")),
    ]
    return table(("", "float model", "engine", ""), rows, left=("",))


def candidates_table(report: Report) -> Table:
    """One row per candidate, fastest first; rejected ones last."""
    columns = ("candidate", "median ms", "speed", "drop", "SQNR dB", "size", "result")
    return table(
        columns, [_candidate_cells(row) for row in report["candidates"]], fold=("candidate", "result")
    )


def _row(report: Report, role: str) -> Mapping[str, Any]:
    """The candidate that was shipped, or the float one that it was compared with."""
    name = report["verdict"][role]
    return next(row for row in report["candidates"] if row["name"] == name)


def _accuracy_rows(shipped: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    accuracy = shipped["accuracy"]
    if accuracy is None:
        return []
    most = most_text(accuracy)
    metric, drop = accuracy["metric"], f"drop {most}{_drop_text(accuracy['drop_ratio'])}"
    sqnr = ("output SQNR", "", f"{db_text(or_infinity(accuracy['sqnr_db']))} dB", "")
    if metric == "sqnr":
        return [(*sqnr[:3], drop)]
    return [(metric, f"{most}{accuracy['float_score']:.4f}", f"{accuracy['score']:.4f}", drop), sqnr]


def _latency_row(baseline: Mapping[str, Any], shipped: Mapping[str, Any]) -> tuple[str, str, str, str]:
    pair = shipped["against_float"]
    speed = "" if pair is None else f"{ratio_text(1 / pair['ratio'])} as fast"
    return ("latency", f"{_median(baseline)} ms", f"{_median(shipped)} ms", speed)


def _size_row(model_bytes: int, engine_bytes: int) -> tuple[str, str, str, str]:
    share = f"{engine_bytes / model_bytes:.2f} of it" if model_bytes else ""
    return (
        "file size",
        bytes_text(model_bytes) if model_bytes else "in memory",
        bytes_text(engine_bytes),
        share,
    )


def _layer_rows(counts: Mapping[str, int], floats: str | None) -> list[tuple[str, str, str, str]]:
    """Args: floats: the precision of the float model; None where that is what was shipped."""
    before = counts if floats is None else {floats: sum(counts.values())}
    names = dict.fromkeys((*before, *counts))
    return [(f"layers in {name}", str(before.get(name, 0)), str(counts.get(name, 0)), "") for name in names]


def _candidate_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["status"] in ("rejected", "left out"):
        what = "cannot run" if row["status"] == "rejected" else row["status"]
        return (row["name"], "-", "-", "-", "-", "-", f"{what}: {row['reason']}")
    pair, accuracy = row["against_float"], row["accuracy"]
    return (
        row["name"],
        _median(row),
        "-" if pair is None else ratio_text(1 / pair["ratio"]),
        "-" if accuracy is None else f"{most_text(accuracy)}{_drop_text(accuracy['drop_ratio'])}",
        "-" if accuracy is None else db_text(or_infinity(accuracy["sqnr_db"])),
        bytes_text(row["size_bytes"]),
        row["status"] if row["status"] == "shipped" else f"{row['status']}: {row['reason']}",
    )


def _median(row: Mapping[str, Any]) -> str:
    return "-" if row["latency"] is None else ms_text(row["latency"]["median_ms"])


def most_text(accuracy: Mapping[str, Any]) -> str:
    """In front of a drop and the float model's score: whether they are bounds; see `Accuracy`."""
    ran = accuracy.get("float_samples")  # engines of before have no such figure: FP32 ran on all
    return "" if ran is None or ran >= accuracy["samples"] else "<= "


def _drop_text(drop: float | None) -> str:
    return "inf" if drop is None else f"{drop:.4f}"
