# SPDX-License-Identifier: Apache-2.0
"""Everything a report shows of one engine, JSON-ready."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quantrt.plan.plan import Plan
from quantrt.report.device_text import device_line
from quantrt.report.engine_layers.graph import layer_edges
from quantrt.report.engine_layers.layer import EngineLayer, TensorForm
from quantrt.report.explain.peaks import Peaks
from quantrt.report.explain.rows import layer_rows
from quantrt.report.explain.times import AT_BUILD, HERE, Times
from quantrt.report.page.graph_layout import BOX_HEIGHT, BOX_WIDTH, draw_graph
from quantrt.report.ranges.bins import read_tensors
from quantrt.runtime.layer_times import LayerTimes

__all__ = ["Measured", "engine_view", "flat_layers", "layers_of_plan"]


@dataclass(frozen=True)
class Measured:
    """What was done with an engine on this machine for a report.

    Attributes:
        times: of its layers; None when it was not run.
        here: facts of this machine.
        inputs: what it was run on, one phrase.
        why_not: why it was not run, one sentence; empty when it was.
        peaks: what its device could do at best; None where that is not known.
    """

    times: LayerTimes | None
    here: Mapping[str, Any]
    inputs: str = ""
    why_not: str = ""
    peaks: Peaks | None = None


def engine_view(
    plan: Plan,
    layers: Sequence[EngineLayer],
    measured: Measured,
    *,
    name: str,
    file_bytes: int | None,
    notes: Sequence[str],
    graph_aspect: float = 1.9,
) -> dict[str, Any]:
    """One engine of a report.

    Args:
        layers: of `quantrt.report.engine_layers.of_engine`, or of `layers_of_plan`.
        file_bytes: None for an engine that was not saved.
        notes: what to know before trusting it here.
        graph_aspect: width over height of the drawing of its layers.
    """
    measured = replace(measured, peaks=_raised(layers, measured))
    build = {key: value for key, value in plan.report.items() if key != "tensors"}
    return {
        "name": name,
        "file_bytes": file_bytes,
        "model_bytes": plan.model.size_bytes,
        "precision": plan.precision,
        "library": plan.model.library,
        "is_calibrated": plan.is_calibrated,
        "inputs": [str(spec) for spec in plan.inputs],
        "outputs": [str(spec) for spec in plan.outputs],
        "node_counts": dict(Counter(layer.precision for layer in plan.layers).most_common()),
        "node_total": len(plan.layers),
        "built_on": device_line(plan.device, plan.model.library),
        "build": build,
        "notes": list(notes),
        "tensors": read_tensors(plan.report.get("tensors")),
        "layers": _layer_rows(plan, layers, measured),
        "measured": _measured(measured, plan.model.library),
        "peaks": _peaks(measured.peaks),
        "graph": _graph(layers, graph_aspect),
    }


def flat_layers(view: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row of plain values for each layer of an engine's view, as a data frame takes them."""
    rows = []
    for layer in view["layers"]:
        row = {key: value for key, value in layer.items() if not isinstance(value, dict | list)}
        row |= {key: ", ".join(layer[key]) for key in ("nodes", "sources", "inputs", "outputs")}
        row["weight_bytes"] = sum(layer["weights"].values())
        rows.append({"engine": view["name"], **row})
    return rows


def layers_of_plan(plan: Plan) -> tuple[EngineLayer, ...]:
    """The nodes of an engine's model in place of what its library runs, where that library is not here."""
    return tuple(
        EngineLayer(
            name=layer.name,
            kind=layer.op_type,
            nodes=(layer.name,),
            sources=layer.sources or (layer.name,),
            precision=layer.precision,
            computes_in=layer.precision,
            reason=layer.reason,
        )
        for layer in plan.layers
    )


def _layer_rows(plan: Plan, layers: Sequence[EngineLayer], measured: Measured) -> list[dict[str, Any]]:
    """Layers with their times, and how near they come to what the device could do, as `explain` tells it."""
    here_ms = dict(measured.times.median_ms) if measured.times is not None else {}
    rows = [_layer_row(layer, here_ms.get(layer.name)) for layer in layers]
    times = Times(
        layer_us={row["name"]: row["time_us"] for row in rows if row["time_us"] is not None},
        basis=HERE if here_ms else AT_BUILD,
        method="",
        engine_us=None,
    )
    explained = layer_rows(plan, layers, times, measured.peaks, conversions=(), missed={})
    for row, found in zip(rows, explained, strict=True):
        is_known = bool(row["time_us"]) and row["operations"] is not None
        row["gops"] = row["operations"] / row["time_us"] / 1e3 if is_known else None
        row["share_ratio"] = found.share_ratio
        row["roof_ratio"] = found.reached_ratio
        row["bound_by"] = found.bound or None
        row["cause"] = found.cause
    return rows


def _raised(layers: Sequence[EngineLayer], measured: Measured) -> Peaks | None:
    """The peaks, of which none is lower than what a layer reached here."""
    if measured.peaks is None or measured.times is None:
        return measured.peaks
    return measured.peaks.raised(
        layers, {name: time_ms * 1e3 for name, time_ms in measured.times.median_ms.items()}
    )


def _layer_row(layer: EngineLayer, here_ms: float | None) -> dict[str, Any]:
    """One layer; its time is the one measured here, or else that of the build."""
    return {
        "name": layer.name,
        "kind": layer.kind,
        "precision": layer.precision,
        "computes_in": layer.computes_in or layer.precision,
        "time_us": layer.median_us if here_ms is None else here_ms * 1e3,
        "built_us": layer.median_us,
        "bytes_moved": layer.bytes_moved,
        "operations": layer.operations,
        "intensity": layer.operations / layer.bytes_moved if layer.operations and layer.bytes_moved else None,
        "tactic": layer.tactic,
        "reason": layer.reason,
        "nodes": list(layer.nodes),
        "sources": list(layer.sources),
        "inputs": [_form_text(form) for form in layer.inputs],
        "outputs": [_form_text(form) for form in layer.outputs],
        "weights": dict(layer.weights),
        "attributes": {key: str(value) for key, value in layer.attributes.items()},
        "rivals": [[rival.name, rival.median_us, rival.reason] for rival in layer.rivals],
    }


def _form_text(form: TensorForm) -> str:
    dims = "?" if form.dims is None else ",".join(map(str, form.dims))
    return f"{form.name} {form.dtype}[{dims}] {form.layout}"


def _measured(measured: Measured, library: str) -> dict[str, Any]:
    times = measured.times
    return {
        "here": device_line(measured.here, library) if times is not None else device_line(measured.here),
        "inputs": measured.inputs,
        "why_not": measured.why_not,
        "method": None if times is None else times.method,
        "runs": 0 if times is None else len(times.run_ms),
        "run_ms": None if times is None else statistics.median(times.run_ms),
    }


def _peaks(peaks: Peaks | None) -> dict[str, Any] | None:
    """Rates in 1e9 operations and bytes per second; bytes by the working set that is read at that rate."""
    if peaks is None:
        return None
    return {
        "gops": {name: rate / 1e3 for name, rate in peaks.operations_per_us.items()},
        "gb_s": [[limit, rate / 1e3] for limit, rate in peaks.bytes_per_us],
        "source": peaks.source,
    }


def _graph(layers: Sequence[EngineLayer], aspect_ratio: float) -> dict[str, Any]:
    """Boxes, and an SVG path for every tensor that goes from one layer to another."""
    edges = layer_edges(layers)
    pairs = list(dict.fromkeys((edge.producer, edge.consumer) for edge in edges))
    dtypes = {(edge.producer, edge.consumer): edge.dtype for edge in edges}
    drawing = draw_graph(len(layers), pairs, aspect_ratio=aspect_ratio)
    return {
        "width": drawing.width,
        "height": drawing.height,
        "box": [BOX_WIDTH, BOX_HEIGHT],
        "boxes": [list(box) for box in drawing.boxes],
        "edges": [[*pair, dtypes[pair], path] for pair, path in zip(pairs, drawing.paths, strict=True)],
    }
