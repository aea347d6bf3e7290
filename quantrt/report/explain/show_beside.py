# SPDX-License-Identifier: Apache-2.0
"""An engine beside what it is not: another precision, another engine; as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quantrt.report.explain.cells import nodes_title, us_text
from quantrt.report.tables import facts, show, table

__all__ = ["show_against", "show_what_if"]

AGAINST = 8

Data = Mapping[str, Any]


def show_what_if(data: Data) -> None:
    """What layers would take in another precision."""
    rows = [
        (
            row["layer"],
            us_text(row["time_us"]),
            us_text(row["predicted_us"]),
            "" if row["gain_us"] is None else f"{0.0 - row['gain_us']:+.1f}",
            row["basis"],
        )
        for row in data["layers"]
    ]
    columns = (f"in {data['precision']}", "us now", "us then", "change", "known from")
    show("", table(columns, rows, fold=(columns[0], "known from")))
    unknown = f"; {data['unknown_layers']} layers have no figure" if data["unknown_layers"] else ""
    if data["gain_ratio"] is not None:
        show(
            f"together {0.0 - data['gain_us']:+.1f} us, {0.0 - data['gain_ratio']:+.0%} of all layers, "
            f"without the conversions at their borders{unknown}"
        )


def show_against(data: Data) -> None:
    """Layers that are slower than in another engine of the same model."""
    rows = [
        (
            _group_title(row),
            row["precision"],
            us_text(row["time_us"]),
            us_text(row["other_us"]),
            f"{row['more_us']:+.1f}",
        )
        for row in data["layers"]
        if row["more_us"] > 0
    ][:AGAINST]
    columns = ("slower here", "in", "us", f"us in {data['precision']}", "more")
    if rows:
        show("", table(columns, rows, left=("in",), fold=("slower here",)))
    pairs = [("against", f"{data['name']}, {data['precision']}")]
    if data["engine_us"] and data["other_engine_us"]:
        ratio = data["other_engine_us"] / data["engine_us"]
        us, other_us = us_text(data["engine_us"]), us_text(data["other_engine_us"])
        pairs.append(("latency", f"{us} us against {other_us}: {ratio:.2f}x as fast"))
    us, other_us = us_text(data["conversions_us"]), us_text(data["other_conversions_us"])
    pairs.append(("conversions", f"{us} us against {other_us}"))
    show("", facts(pairs))


def _group_title(row: Data) -> str:
    """Layers that the other engine fuses otherwise, by the first node that they compute."""
    title = nodes_title(row["nodes"]) if row["nodes"] else row["layers"][0]
    return title if len(row["layers"]) == 1 else f"{title} in {len(row['layers'])} layers"
