# SPDX-License-Identifier: Apache-2.0
"""Answers from saved tables: an assignment for one budget, and the front over all; as data and text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quantrt.assign.assignment.assignment import Assigned, uniform
from quantrt.assign.tables.noise_limit import predicted_drop
from quantrt.assign.tables.region import FLOAT
from quantrt.assign.tables.tables import Tables, read_tables, tables_from_json
from quantrt.errors import DataError, UsageError
from quantrt.plan.serialize import load_plan
from quantrt.report.built.mixed import ratio_of_metric
from quantrt.report.json_numbers import finite
from quantrt.report.quantities import bytes_text, ms_text, ratio_text
from quantrt.report.tables import facts, heading, show, table

__all__ = ["describe_assigned", "describe_front", "front_table", "open_tables", "show_assigned", "show_front"]

SHOWN = 20
"""Float regions that are listed without --all."""


def open_tables(path: Path) -> Tables:
    """The tables of a file of their own, or those that an engine keeps in its report.

    Raises:
        DataError: there are none in it.
        ModelError: the engine cannot be read.
        UsageError: it is a model, for which they have to be made first.
    """
    if path.suffix == ".onnx":
        tables, engine = path.with_suffix(".tables.json"), path.with_suffix(".qrt")
        raise UsageError(
            f"'{path}' is a model, not what a build measured of one",
            expected="what `quantrt build --tables` wrote (.json), or an engine (.qrt)",
            hint=f"quantrt build {path} --int8 --calib-data P --tables {tables} -o {engine}",
        )
    if path.suffix != ".qrt":
        return read_tables(path)
    mixed = load_plan(path).report.get("mixed") or {}
    if "tables" not in mixed:
        reason = mixed.get("reason")
        raise DataError(
            f"'{path}' keeps no damages and times",
            got=None if reason is None else str(reason),
            hint="quantrt build ... --tables FILE.json with a budget that all of int8 is outside of",
        )
    return tables_from_json(mixed["tables"], str(path))


def describe_assigned(
    tables: Tables, found: Assigned, *, path: Path, asked: Mapping[str, float]
) -> dict[str, Any]:
    """JSON-ready data of one assignment.

    Args:
        asked: what was asked for, by name.
    """
    return {
        "kind": "tune",
        "path": str(path),
        "asked": dict(asked),
        **_row(tables, found),
        "float": [{"name": name, "reason": reason} for name, reason in found.reasons.items()],
        "engines": _measured(tables),
        "library": tables.library,
        "metric": tables.metric,
    }


def describe_front(tables: Tables, front: Sequence[Assigned], *, path: Path) -> dict[str, Any]:
    """JSON-ready data of a front."""
    return {
        "kind": "pareto",
        "path": str(path),
        "front": [_row(tables, one) for one in front],
        "engines": _measured(tables),
        "library": tables.library,
        "metric": tables.metric,
    }


def show_assigned(data: Mapping[str, Any], *, everything: bool = False) -> None:
    """The prediction, and which regions stay float and why."""
    asked = ", ".join(f"{name} {value:g}" for name, value in data["asked"].items())
    show(heading(f"{data['path']}: {asked}, predicted for {data['library']}"))
    rows = [
        ("time", f"{ms_text(data['predicted_ms'])} ms, {ratio_text(data['speed_ratio'])} as fast as float"),
        ("noise", f"{data['noise_ratio']:.1e} of the outputs' power, the damages added up"),
        ("drop", f"{_drop_text(data['drop_ratio'])} of {data['metric']}, by the engines measured so far"),
        *_size_row(data),
        ("regions", f"{data['quantized']} in 8 bits, {len(data['float'])} float"),
    ]
    show(facts(rows))
    shown = data["float"] if everything else data["float"][:SHOWN]
    if shown:
        show(
            "",
            table(
                ("stays float", "why"),
                [(r["name"], r["reason"]) for r in shown],
                left=("why",),
                fold=("stays float", "why"),
            ),
        )
    hidden = len(data["float"]) - len(shown)
    if hidden:
        show(f"and {hidden} more: --all")
    show("", _engines_table(data["engines"]))


def show_front(data: Mapping[str, Any]) -> None:
    """A row per assignment, and the engines that were measured."""
    show(heading(f"{data['path']}: the fastest for every amount of noise, predicted for {data['library']}"))
    show("", table(*front_table(data)), "", _engines_table(data["engines"]))


def front_table(data: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Columns and rows of a front, a row per assignment."""
    columns = ("noise", f"drop of {data['metric']}", "ms", "speed", "8-bit regions", "float")
    rows = [
        (
            f"{row['noise_ratio']:.1e}",
            _drop_text(row["drop_ratio"]),
            ms_text(row["predicted_ms"]),
            ratio_text(row["speed_ratio"]),
            str(row["quantized"]),
            str(row["regions"] - row["quantized"]),
        )
        for row in data["front"]
    ]
    return columns, rows


def _row(tables: Tables, found: Assigned) -> dict[str, Any]:
    costs = tables.costs
    float_ms = math.nan if costs is None else costs.predict_ms(uniform(tables, FLOAT))
    drop = predicted_drop(tables.points, tables.metric, found.noise_ratio)
    return {
        "predicted_ms": found.predicted_ms,
        "speed_ratio": float_ms / found.predicted_ms,
        "noise_ratio": found.noise_ratio,
        "predicted_bytes": None if tables.sizes is None else tables.sizes.predict_bytes(found.precisions),
        "float_bytes": None if tables.sizes is None else tables.sizes.predict_bytes(uniform(tables, FLOAT)),
        "drop_ratio": finite(drop),
        "quantized": len(found.quantized),
        "regions": len(found.precisions),
    }


def _size_row(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The size of the model, where it is known."""
    if data["predicted_bytes"] is None:
        return []
    ratio = data["predicted_bytes"] / data["float_bytes"] if data["float_bytes"] else 1.0
    return [("size", f"{bytes_text(data['predicted_bytes'])}, {ratio:.2f} of the float model")]


def _measured(tables: Tables) -> list[dict[str, Any]]:
    return [
        {
            "quantized": engine.quantized_count,
            "regions": len(engine.assignment),
            "latency_ms": engine.latency_ms,
            "predicted_ms": None if tables.costs is None else tables.costs.predict_ms(engine.assignment),
            "noise_ratio": finite(engine.noise_ratio),
            "drop_ratio": finite(engine.drop_ratio),
        }
        for engine in tables.engines
    ]


def _engines_table(engines: Sequence[Mapping[str, Any]]) -> Any:
    columns = ("engines measured: 8-bit regions", "of", "ms", "predicted now", "noise", "drop")
    rows = [
        (
            str(row["quantized"]),
            str(row["regions"]),
            "-" if row["latency_ms"] is None else ms_text(row["latency_ms"]),
            "-" if row["predicted_ms"] is None else ms_text(row["predicted_ms"]),
            "-" if row["noise_ratio"] is None else f"{row['noise_ratio']:.1e}",
            _drop_text(row["drop_ratio"]),
        )
        for row in engines
    ]
    return table(columns, rows)


def _drop_text(drop: float | None) -> str:
    return "-" if drop is None else ratio_of_metric(drop)
