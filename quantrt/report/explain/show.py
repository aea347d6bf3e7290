# SPDX-License-Identifier: Apache-2.0
"""An explanation as tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quantrt.report.explain.cells import layer_title, nodes_title, precision_text, share_text, us_text
from quantrt.report.explain.show_beside import show_against, show_what_if
from quantrt.report.explain.show_layer import show_layer
from quantrt.report.quantities import bytes_text
from quantrt.report.tables import facts, heading, show, table

__all__ = ["show_explanation"]

LONGEST = 12
"""Layers that are shown without being asked for."""

FULL_LAYERS = 3
"""Layers asked for that are shown with everything known of them; more than that as a table."""

SHORT_REASON = 30
"""Characters that take no line of their own beside the other columns."""

LEAST_SHARE = 0.001
TERA = 1e3
PETA = 1e6
"""In giga."""

FLOAT_LAYERS = 4

_DETAIL = re.compile(r"\s*[:;(].*$")
"""What a reason goes on with; `--layer` shows all of it."""

Data = Mapping[str, Any]


def show_explanation(data: Data, *, with_all: bool = False) -> None:
    """The whole engine, or of the layers asked for all that is known."""
    show(heading(f"{data['path']}: {data['precision']} engine on {data['library']}"))
    if data["pattern"] is None:
        _show_whole(data, with_all=with_all)
    elif len(data["layers"]) <= FULL_LAYERS:
        for layer in data["layers"]:
            show_layer(layer)
    else:
        _show_layers(data["layers"])
    if data["what_if"] is not None:
        show_what_if(data["what_if"])
    if data["against"] is not None:
        show_against(data["against"])


def _show_whole(data: Data, *, with_all: bool) -> None:
    show(facts([*_time_facts(data), *(("verdict", text) for text in data["verdicts"])]))
    layers = data["layers"]
    if not with_all and len(layers) > LONGEST:
        layers = sorted(layers, key=lambda row: -(row["time_us"] or 0.0))[:LONGEST]
    _show_layers(layers)
    if len(layers) < len(data["layers"]):
        show(f"and {len(data['layers']) - len(layers)} more, which are shorter: --all lists all")
    if data["times"]["layers_us"]:
        _show_sums(data)
    _show_changes(data["changes"])
    _show_not_shipped(data["not_shipped"])
    _show_size(data["size"])
    if data["next"]:
        show("", facts((what, command) for what, command in data["next"]))


def _show_sums(data: Data) -> None:
    """What the time is spent on."""
    for title, key in (("time by precision", "by_precision"), ("time by cause", "by_cause")):
        rows = [
            (row["name"], str(row["layers"]), us_text(row["time_us"]), share_text(row["share_ratio"]))
            for row in data[key]
        ]
        show("", table((title, "layers", "us", "share"), rows, left=(title,), fold=(title,)))
    bounds = [row for row in data["by_bound"] if row["share_ratio"] >= LEAST_SHARE]
    if any(row["name"] != "not known" for row in bounds):
        text = ", ".join(f"{row['name']} {share_text(row['share_ratio'])}" for row in bounds)
        show("", facts([("bound by", text)]))


def _time_facts(data: Data) -> Iterator[tuple[str, str]]:
    times, peaks = data["times"], data["peaks"]
    if times["engine_us"] is not None:
        yield "latency", f"{us_text(times['engine_us'])} us"
    shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in data["shapes"].items())
    yield "layers", f"{us_text(times['layers_us'])} us together, {times['basis']}: {times['method']}"
    if shapes:
        yield "inputs", shapes
    if times["busy_ratio"] is not None:
        yield "busy", f"{times['busy_ratio']:.2f}: all layers over a whole run"
    if times["outside_layers_ratio"]:
        yield "outside layers", share_text(times["outside_layers_ratio"])
    if peaks is None:
        yield "roofline", f"none: {data['no_peaks']}"
    else:
        rates = ", ".join(
            f"{name} {_rate_text(rate)}op/s" for name, rate in peaks["giga_operations_per_s"].items()
        )
        memory = ", ".join(_memory_text(row) for row in peaks["gb_per_s"])
        yield "roofline", f"{rates}; {memory} ({peaks['source']})"


def _memory_text(row: Data) -> str:
    size = f" up to {bytes_text(row['up_to_bytes'])}" if row["up_to_bytes"] else ""
    return f"{_rate_text(row['rate'])}B/s{size}"


def _rate_text(giga: float) -> str:
    if giga >= PETA:
        return f"{giga / PETA:.3g} P"
    return f"{giga / TERA:.3g} T" if giga >= TERA else f"{giga:.3g} G"


def _show_layers(layers: Sequence[Data]) -> None:
    shared = _shared_reason([_DETAIL.sub("", row["reason"]) for row in layers])
    columns = ("layer", "kind", "in", "us", "share", "of roof", "bound", "why")
    rows = [
        (
            layer_title(row),
            row["kind"],
            precision_text(row),
            us_text(row["time_us"]),
            share_text(row["share_ratio"]),
            "" if row["reached_ratio"] is None else f"{row['reached_ratio']:.2f}",
            row["bound"] or "",
            "[1]" if reason == shared else reason,
        )
        for row in layers
        for reason in (_DETAIL.sub("", row["reason"]),)
    ]
    show("", table(columns, rows, left=("kind", "in", "bound"), fold=("layer", "why")))
    if shared:
        show("", facts([("[1]", shared)]))


def _shared_reason(reasons: Sequence[str]) -> str:
    """A long reason that most layers have, which is said once; empty where there is none."""
    reason, count = Counter(reasons).most_common(1)[0] if reasons else ("", 0)
    return reason if len(reason) > SHORT_REASON and count > 1 and 2 * count > len(reasons) else ""


def _show_changes(changes: Sequence[Data]) -> None:
    if not changes:
        show("", facts([("changes", "none known that would gain 1 % or more")]))
        return
    rows = [(row["what"], f"-{row['gain_ratio']:.0%}", row["basis"], row["command"]) for row in changes]
    show(
        "",
        table(
            ("cheapest changes", "time", "known from", "try"),
            rows,
            fold=("cheapest changes", "known from", "try"),
        ),
    )


def _show_not_shipped(rows: Sequence[Data]) -> None:
    """What the build measured of the other precisions."""
    cells = [
        (
            row["name"],
            "" if row["ratio"] is None else f"{row['ratio']:.2f}x",
            f"{us_text(row['conversions_us'])} in {row['conversions']}",
            ", ".join(f"{nodes_title(one['nodes'])} {one['more_us']:+.1f}" for one in row["slower"]),
            row["reason"],
        )
        for row in rows
    ]
    if cells:
        columns = ("not shipped", "time", "us converting", "slower by us", "because")
        show("", table(columns, cells, fold=("not shipped", "slower by us", "because")))


def _show_size(size: Data) -> None:
    rows = [
        (row["what"], bytes_text(row["bytes"]), share_text(row["bytes"] / size["file_bytes"]))
        for row in size["parts"]
    ]
    show("", table(("what is in the file", "bytes", "share"), rows, left=("what is in the file",)))
    pairs = [("file", bytes_text(size["file_bytes"]))]
    if size["model_file_bytes"]:
        ratio = size["file_bytes"] / size["model_file_bytes"]
        pairs.append(
            ("float model", f"{bytes_text(size['model_file_bytes'])}; the engine is {ratio:.2f} of it")
        )
    if size["duplicate_bytes"]:
        pairs.append(("twice in it", bytes_text(size["duplicate_bytes"])))
    for row in size["float_layers"][:FLOAT_LAYERS]:
        why = f": {row['reason']}" if row["reason"] else ""
        name = row["nodes"][0] if row["nodes"] else row["layer"]
        pairs.append(("float weights", f"{bytes_text(row['bytes'])} read for '{name}'{why}"))
    others = len(size["float_layers"]) - FLOAT_LAYERS
    if others > 0:
        pairs.append(("float weights", f"and {others} more layers"))
    show("", facts(pairs))
