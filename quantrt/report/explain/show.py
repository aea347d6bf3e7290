# SPDX-License-Identifier: Apache-2.0
"""An explanation as tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quantrt.report.quantities import bytes_text, count_text
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
RIVALS = 8
AGAINST = 8

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
            _show_layer(layer)
    else:
        _show_layers(data["layers"])
    if data["what_if"] is not None:
        _show_what_if(data["what_if"])
    if data["against"] is not None:
        _show_against(data["against"])


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
            (row["name"], str(row["layers"]), _us(row["time_us"]), _share(row["share_ratio"]))
            for row in data[key]
        ]
        show("", table((title, "layers", "us", "share"), rows, left=(title,), fold=(title,)))
    bounds = [row for row in data["by_bound"] if row["share_ratio"] >= LEAST_SHARE]
    if any(row["name"] != "not known" for row in bounds):
        text = ", ".join(f"{row['name']} {_share(row['share_ratio'])}" for row in bounds)
        show("", facts([("bound by", text)]))


def _time_facts(data: Data) -> Iterator[tuple[str, str]]:
    times, peaks = data["times"], data["peaks"]
    if times["engine_us"] is not None:
        yield "latency", f"{_us(times['engine_us'])} us"
    shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in data["shapes"].items())
    yield "layers", f"{_us(times['layers_us'])} us together, {times['basis']}: {times['method']}"
    if shapes:
        yield "inputs", shapes
    if times["busy_ratio"] is not None:
        yield "busy", f"{times['busy_ratio']:.2f}: all layers over a whole run"
    if times["outside_layers_ratio"]:
        yield "outside layers", _share(times["outside_layers_ratio"])
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
            _title(row),
            row["kind"],
            _precision(row),
            _us(row["time_us"]),
            _share(row["share_ratio"]),
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


def _title(row: Data) -> str:
    """A layer by the first node that it computes; one without nodes by its own name."""
    return _nodes_title(row["nodes"]) if row["nodes"] else str(row["name"])


def _nodes_title(nodes: Sequence[str]) -> str:
    return f"{nodes[0]} + {len(nodes) - 1}" if len(nodes) > 1 else nodes[0]


def _precision(row: Data) -> str:
    if row["computes_in"] in ("", row["precision"]):
        return str(row["precision"])
    return f"{row['precision']} in {row['computes_in']}"


def _show_layer(row: Data) -> None:
    show("", heading(row["name"]), facts(_layer_facts(row)))
    rivals = row["rivals"][:RIVALS]
    if rivals:
        cells = [(rival["name"], _us(rival["median_us"]), rival["reason"]) for rival in rivals]
        show("", table(("not taken", "us", "because"), cells, fold=("not taken", "because")))


def _layer_facts(row: Data) -> Iterator[tuple[str, str]]:
    yield "kind", row["kind"]
    if row["nodes"]:
        yield "nodes", ", ".join(row["nodes"])
    sources = [name for name in row["sources"] if name not in row["nodes"]]
    if sources:
        yield "also in the file", ", ".join(sources)
    yield "precision", f"{_precision(row) or 'none'}{': ' + row['reason'] if row['reason'] else ''}"
    if row["tactic"]:
        yield "runs as", row["tactic"]
    if row["time_us"] is not None:
        yield "time", f"{_us(row['time_us'])} us, {_share(row['share_ratio'])} of all layers"
    yield "work", _work_text(row)
    if row["reached_ratio"] is not None:
        yield (
            "roofline",
            f"bound by {row['bound']}; its bytes and operations allow {_us(row['roofline_us'])} us, "
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
            f"{_us(time_us)} us in {name}"
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
            f"{_us(row['conversions_us'])} in {row['conversions']}",
            ", ".join(f"{_nodes_title(one['nodes'])} {one['more_us']:+.1f}" for one in row["slower"]),
            row["reason"],
        )
        for row in rows
    ]
    if cells:
        columns = ("not shipped", "time", "us converting", "slower by us", "because")
        show("", table(columns, cells, fold=("not shipped", "slower by us", "because")))


def _show_size(size: Data) -> None:
    rows = [
        (row["what"], bytes_text(row["bytes"]), _share(row["bytes"] / size["file_bytes"]))
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


def _show_what_if(data: Data) -> None:
    rows = [
        (
            row["layer"],
            _us(row["time_us"]),
            _us(row["predicted_us"]),
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


def _show_against(data: Data) -> None:
    rows = [
        (
            _group_title(row),
            row["precision"],
            _us(row["time_us"]),
            _us(row["other_us"]),
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
        pairs.append(
            (
                "latency",
                f"{_us(data['engine_us'])} us against {_us(data['other_engine_us'])}: {ratio:.2f}x as fast",
            )
        )
    pairs.append(
        (
            "conversions",
            f"{_us(data['conversions_us'])} us against {_us(data['other_conversions_us'])}",
        )
    )
    show("", facts(pairs))


def _group_title(row: Data) -> str:
    """Layers that the other engine fuses otherwise, by the first node that they compute."""
    title = _nodes_title(row["nodes"]) if row["nodes"] else row["layers"][0]
    return title if len(row["layers"]) == 1 else f"{title} in {len(row['layers'])} layers"


def _us(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
