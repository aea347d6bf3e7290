# SPDX-License-Identifier: Apache-2.0
"""What a Q/DQ model's accuracy budget made of it, as the model's file tells it: tables.

    {"metric": "top1", "max_drop_ratio": 0.01, "measured_on": "validation data", "samples": 1000,
     "passed": true, "float_score": 0.75, "reason": "the same layers came out again",
     "all_int8": {"score": 0.71, "drop_ratio": 0.053, "sqnr_db": 21.0, "int8_product_ratio": 1.0},
     "result": {"score": 0.745, "drop_ratio": 0.0067, "sqnr_db": 31.2, "int8_product_ratio": 0.82},
     "rounds": [{"float_layers": 3, "noise_ratio": 0.0008, "score": ..., "is_inside": true, "is_best": true,
                 "culprits": []}],
     "float_layers": [{"name": "/conv1", "op_types": ["Conv"], "noise_ratio": 0.002, "product_ratio": 0.18,
                       "reason": "kept float: damage, ..."}]}

What is infinite is null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from quantrt.report.built.mixed import ratio_of_metric
from quantrt.report.tables import facts, heading, show, table

__all__ = ["BUDGET_KEY", "read_budget", "show_budget"]

BUDGET_KEY = "quantrt.budget"
"""The property of an ONNX model that holds it, as JSON."""

SHOWN = 12
"""Layers left float that are listed without being asked for all."""

_KEYS = frozenset(
    {
        "metric",
        "max_drop_ratio",
        "measured_on",
        "samples",
        "passed",
        "float_score",
        "reason",
        "all_int8",
        "result",
        "rounds",
        "float_layers",
    }
)


def read_budget(properties: Mapping[str, str]) -> dict[str, Any] | None:
    """What the properties of a model tell; None where they tell nothing, or of another form."""
    try:
        data = json.loads(properties.get(BUDGET_KEY, "null"))
    except ValueError:
        return None
    return data if isinstance(data, dict) and data.keys() >= _KEYS else None


def show_budget(data: Mapping[str, Any], *, layers: bool = False) -> None:
    """What was lost and gained, the rounds, and the layers that are left float; all of them with `layers`."""
    metric, rounds = data["metric"], data["rounds"]
    asked = f"{metric} drop of at most {ratio_of_metric(data['max_drop_ratio'])}"
    show("", heading(f"Accuracy budget: {asked}, on {data['samples']} samples of {data['measured_on']}"))
    pairs = [("float model", _score_text(metric, data["float_score"]))]
    pairs.append(("all in 8 bits", _file_text(metric, data["all_int8"])))
    if rounds:
        pairs.append(("this one", _file_text(metric, data["result"])))
    show(facts([*pairs, ("stopped", data["reason"])]))
    if rounds:
        show("", _rounds_table(data))
    floats = data["float_layers"]
    if floats:
        shown = floats if layers else floats[:SHOWN]
        show("", _floats_table(shown))
        if len(shown) < len(floats):
            show(f"and {len(floats) - len(shown)} more layers left float")


def _rounds_table(data: Mapping[str, Any]) -> Table:
    columns = ("round", "left float", "products in int8", "noise", "metric", "drop", "result")
    rows = [
        (
            str(number),
            str(row["float_layers"]),
            f"{row['int8_product_ratio']:.1%}",
            "-" if row["noise_ratio"] is None else f"{row['noise_ratio']:.1e}",
            _score_text(data["metric"], row["score"]),
            _drop_text(row["drop_ratio"]),
            _result_text(row),
        )
        for number, row in enumerate(data["rounds"], start=1)
    ]
    return table(columns, rows, fold=("result",))


def _floats_table(floats: list[Mapping[str, Any]]) -> Table:
    columns = ("left float", "operators", "noise alone", "of all products")
    rows = [
        (
            row["name"],
            ", ".join(dict.fromkeys(row["op_types"])),
            "NaN or infinite" if row["noise_ratio"] is None else f"{row['noise_ratio']:.1e}",
            f"{row['product_ratio']:.1%}",
        )
        for row in floats
    ]
    return table(columns, rows, left=("operators",), fold=("left float",))


def _result_text(row: Mapping[str, Any]) -> str:
    text = "inside" if row["is_inside"] else "outside"
    if row["is_best"]:
        text += ", the fewest floats of these"
    if row["culprits"]:
        text += f"; more noise together than apart: {', '.join(row['culprits'])}"
    return text


def _file_text(metric: str, row: Mapping[str, Any]) -> str:
    sqnr = "" if metric == "sqnr" or row["sqnr_db"] is None else f", {row['sqnr_db']:.1f} dB"
    return (
        f"{_score_text(metric, row['score'])}, drop {_drop_text(row['drop_ratio'])}{sqnr}; "
        f"{row['int8_product_ratio']:.1%} of the products in int8"
    )


def _score_text(metric: str, score: float | None) -> str:
    if metric == "sqnr":
        return "no noise" if score is None else f"{score:.2f} dB"
    return "not finite" if score is None else f"{score:.4f}"


def _drop_text(drop: float | None) -> str:
    return "inf" if drop is None else ratio_of_metric(drop)
