# SPDX-License-Identifier: Apache-2.0
"""All that is known of one layer, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quantrt.report.explain.cells import precision_text, share_text, us_text
from quantrt.report.quantities import bytes_text, count_text
from quantrt.report.tables import facts, heading, show, table

__all__ = ["show_layer"]

RIVALS = 8

Data = Mapping[str, Any]


def show_layer(row: Data) -> None:
    """One layer, and the tactics that were not taken for it."""
    show("", heading(row["name"]), facts(_layer_facts(row)))
    rivals = row["rivals"][:RIVALS]
    if rivals:
        cells = [(rival["name"], us_text(rival["median_us"]), rival["reason"]) for rival in rivals]
        show("", table(("not taken", "us", "because"), cells, fold=("not taken", "because")))


def _layer_facts(row: Data) -> Iterator[tuple[str, str]]:
    yield "kind", row["kind"]
    if row["nodes"]:
        yield "nodes", ", ".join(row["nodes"])
    sources = [name for name in row["sources"] if name not in row["nodes"]]
    if sources:
        yield "also in the file", ", ".join(sources)
    yield "precision", f"{precision_text(row) or 'none'}{': ' + row['reason'] if row['reason'] else ''}"
    if row["tactic"]:
        yield "runs as", row["tactic"]
    if row["time_us"] is not None:
        yield "time", f"{us_text(row['time_us'])} us, {share_text(row['share_ratio'])} of all layers"
    yield "work", _work_text(row)
    if row["reached_ratio"] is not None:
        yield (
            "roofline",
            f"bound by {row['bound']}; its bytes and operations allow {us_text(row['roofline_us'])} us, "
            f"{row['reached_ratio']:.2f} of which it reaches",
        )
    for name in ("inputs", "outputs"):
        for form in row[name]:
            yield name.removesuffix("s"), _form_text(form)
    if row["weights"]:
        yield "weights", ", ".join(f"{bytes_text(size)} {dtype}" for dtype, size in row["weights"].items())
    beside = row["attributes"].get("beside_us")
    if beside:
        together = row["attributes"].get("beside_layers", {})
        texts = (
            f"{us_text(time_us)} us in {name}"
            + (f" (of {together[name]} layers together)" if name in together else "")
            for name, time_us in beside.items()
        )
        yield "in others", ", ".join(texts) + ", measured at build"
    for one in row["conversions"]:
        yield "conversion", f"{one['change']} between '{one['maker']}' and {_readers_text(one['readers'])}"
    for text in row["missed_fusions"]:
        yield "not fused", text


def _work_text(row: Data) -> str:
    moved = "bytes not known" if row["bytes"] is None else bytes_text(row["bytes"])
    done = (
        "operations not known" if row["operations"] is None else f"{count_text(row['operations'])} operations"
    )
    return f"{moved}, {done}"


def _form_text(form: Data) -> str:
    dims = "size not known" if form["dims"] is None else "x".join(map(str, form["dims"])) or "scalar"
    return f"{form['name']}: {dims} {form['dtype']}, {form['layout']}"


def _readers_text(readers: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in readers) or "the caller"
