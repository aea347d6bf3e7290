# SPDX-License-Identifier: Apache-2.0
"""Everything that explains an engine, JSON-ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from quantrt.dtypes import CODE_PRECISIONS
from quantrt.plan.plan import Plan
from quantrt.report.engine_layers.layer import EngineLayer, TensorForm
from quantrt.report.explain.against import Against, Beside, layers_beside
from quantrt.report.explain.changes import BatchTime, cheapest_changes
from quantrt.report.explain.neighbours import Conversion, conversions, missed_fusions
from quantrt.report.explain.not_shipped import describe_not_shipped
from quantrt.report.explain.peaks import Peaks
from quantrt.report.explain.rows import BOUNDS, CONVERSIONS, NO_WORK, LayerRow, layer_rows
from quantrt.report.explain.size import Size, describe_size
from quantrt.report.explain.times import Times
from quantrt.report.explain.what_if import predict, select

__all__ = ["Evidence", "describe_explanation"]

BOUND_SHARE = 0.5
"""Of the time, from which on one bound is said to bind the whole."""

SLOW_FLOAT_SHARE = 0.05
"""Of the time in products left float, from which on that is a verdict."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is explained.

    Attributes:
        path: of its file.
        file_bytes: of it.
        shapes: of the inputs that were timed; empty for an engine that was not run.
        no_peaks: why there is no roofline; empty where there is one.
    """

    path: str
    file_bytes: int | None
    plan: Plan
    layers: tuple[EngineLayer, ...]
    times: Times
    peaks: Peaks | None
    no_peaks: str = ""
    shapes: Mapping[str, tuple[int, ...]] | None = None
    batch: BatchTime | None = None
    against: Against | None = None


def describe_explanation(
    evidence: Evidence, *, pattern: str | None = None, what_if: str | None = None
) -> dict[str, Any]:
    """The explanation.

    Args:
        pattern: which layers are asked about, by name or glob; None for all.
        what_if: a precision to predict them in.

    Raises:
        UsageError: no layer matches the pattern.
    """
    plan, times = evidence.plan, evidence.times
    changed = conversions(evidence.layers)
    rows = layer_rows(
        plan,
        evidence.layers,
        times,
        evidence.peaks,
        conversions=changed,
        missed=missed_fusions(plan, evidence.layers),
    )
    chosen = rows if pattern is None else select(rows, pattern)
    size = describe_size(plan, evidence.file_bytes, evidence.layers)
    return {
        "kind": "explanation",
        "path": evidence.path,
        "library": plan.model.library,
        "precision": plan.precision,
        "pattern": pattern,
        "shapes": {name: list(shape) for name, shape in (evidence.shapes or {}).items()},
        "times": _times(evidence),
        "peaks": None if evidence.peaks is None else _peaks(evidence.peaks),
        "no_peaks": evidence.no_peaks,
        "verdicts": list(_verdicts(evidence, rows, changed)),
        "not_shipped": describe_not_shipped(plan),
        "by_precision": _sums(rows, lambda row: row.layer.computes_in or "none"),
        "by_cause": _sums(rows, lambda row: row.cause),
        "by_bound": _sums(rows, lambda row: row.bound or "not known"),
        "changes": [
            asdict(change) for change in cheapest_changes(plan, rows, times, evidence.peaks, evidence.batch)
        ],
        "size": _size(size, {layer.name: layer.nodes for layer in evidence.layers}),
        "next": list(_next(evidence)),
        "layers": [_layer(row) for row in chosen],
        "what_if": None if what_if is None else _what_if(evidence, chosen, what_if),
        "against": None if evidence.against is None else _against(evidence, rows, changed),
    }


def _next(evidence: Evidence) -> Iterable[tuple[str, str]]:
    """Questions that other commands answer: (what, command)."""
    plan, path = evidence.plan, evidence.path
    model = plan.report.get("model", {}).get("path") or "MODEL.onnx"
    if plan.precision in CODE_PRECISIONS:
        yield (
            "which layers lose the accuracy",
            f"quantrt compare {model} {path} --data DATA --layers",
        )
    if plan.model.library == "cuda":
        yield "which kernels another GPU has", f"quantrt check {model} --device GPU"


def _times(evidence: Evidence) -> dict[str, Any]:
    times = evidence.times
    is_gpu = evidence.plan.model.library == "cuda"
    busy = times.total_us / times.engine_us if times.engine_us and times.total_us else None
    return {
        "basis": times.basis,
        "method": times.method,
        "engine_us": times.engine_us,
        "layers_us": times.total_us,
        "busy_ratio": busy if is_gpu else None,
        "outside_layers_ratio": None if is_gpu or busy is None else max(0.0, 1 - busy),
    }


def _peaks(peaks: Peaks) -> dict[str, Any]:
    return {
        "giga_operations_per_s": {name: rate / 1e3 for name, rate in peaks.operations_per_us.items()},
        "gb_per_s": [{"up_to_bytes": size or None, "rate": rate / 1e3} for size, rate in peaks.bytes_per_us],
        "launch_us": peaks.launch_us,
        "source": peaks.source,
    }


def _verdicts(evidence: Evidence, rows: Sequence[LayerRow], changed: Sequence[Conversion]) -> Iterable[str]:
    """What stands out, one sentence each."""
    times = evidence.times
    if not times.total_us:
        yield "no layer has a time: the engine was neither timed nor estimated"
        return
    bounds = {row["name"]: row["share_ratio"] for row in _sums(rows, lambda row: row.bound)}
    for bound in BOUNDS:
        if bounds.get(bound, 0.0) >= BOUND_SHARE:
            yield f"{bound}-bound: layers bound by {bound} take {bounds[bound]:.0%} of the time of all layers"
    if bounds.get("launch", 0.0) < BOUND_SHARE and "" not in bounds:
        yield f"not launch-bound: layers bound by launches take {bounds.get('launch', 0.0):.0%}"
    converting_us = sum(times.layer_us.get(row.layer.name, 0.0) for row in changed)
    if changed:
        types = sum(row.layer.inputs[0].dtype != row.layer.outputs[0].dtype for row in changed)
        yield (
            f"conversions between layers: {len(changed)}, {types} of them of types, take "
            f"{converting_us / times.total_us:.0%}"
        )
    yield from _float_verdicts(evidence, rows)


def _float_verdicts(evidence: Evidence, rows: Sequence[LayerRow]) -> Iterable[str]:
    if evidence.plan.precision not in CODE_PRECISIONS:
        return
    left = [row for row in rows if row.layer.operations and row.layer.computes_in not in CODE_PRECISIONS]
    share = sum(row.share_ratio or 0.0 for row in left)
    if left and share >= SLOW_FLOAT_SHARE:
        yield f"products in floats: {len(left)}, take {share:.0%}; the causes are below"


def _sums(rows: Sequence[LayerRow], key: Callable[[LayerRow], str]) -> list[dict[str, Any]]:
    found: dict[str, list[LayerRow]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    sums = [
        {
            "name": name,
            "layers": len(members),
            "time_us": sum(row.time_us or 0.0 for row in members),
            "share_ratio": sum(row.share_ratio or 0.0 for row in members),
        }
        for name, members in found.items()
    ]
    return sorted(sums, key=lambda row: -float(str(row["time_us"])))


def _layer(row: LayerRow) -> dict[str, Any]:
    layer = row.layer
    return {
        "name": layer.name,
        "kind": layer.kind,
        "nodes": list(layer.nodes),
        "sources": list(layer.sources),
        "precision": layer.precision,
        "computes_in": layer.computes_in,
        "reason": layer.reason,
        "cause": row.cause,
        "tactic": layer.tactic,
        "rivals": [asdict(rival) for rival in layer.rivals],
        "time_us": row.time_us,
        "share_ratio": row.share_ratio,
        "bytes": layer.bytes_moved,
        "operations": layer.operations,
        "bound": row.bound or None,
        "roofline_us": row.roofline_us,
        "reached_ratio": row.reached_ratio,
        "conversions": [
            {
                "layer": one.layer.name,
                "change": one.change,
                "maker": one.maker,
                "readers": list(one.readers),
            }
            for one in row.conversions
        ],
        "missed_fusions": list(row.missed),
        "inputs": [_form(form) for form in layer.inputs],
        "outputs": [_form(form) for form in layer.outputs],
        "weights": dict(layer.weights),
        "attributes": dict(layer.attributes),
    }


def _form(form: TensorForm) -> dict[str, Any]:
    return {**asdict(form), "dims": None if form.dims is None else list(form.dims)}


def _size(size: Size, nodes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The bytes of the file.

    Args:
        nodes: of every layer.
    """
    return {
        "file_bytes": size.file_bytes,
        "model_file_bytes": size.model_bytes,
        "parts": [{"what": what, "bytes": count} for what, count in size.parts],
        "duplicate_bytes": size.duplicate_bytes,
        "float_weight_bytes": size.float_bytes,
        "float_layers": [
            {"layer": name, "nodes": list(nodes.get(name, ())), "bytes": count, "reason": reason}
            for name, count, reason in size.float_layers
        ],
    }


def _what_if(evidence: Evidence, rows: Sequence[LayerRow], precision: str) -> dict[str, Any]:
    against = evidence.against
    is_same = against is not None and against.precision == precision
    groups = {name: group for group in _beside(evidence) for name in group.layers} if is_same else {}
    other = against.name if against is not None else ""
    computed = [row for row in rows if row.cause not in (CONVERSIONS, NO_WORK)]
    found = [predict(row, precision, evidence.peaks, groups.get(row.layer.name), other) for row in computed]
    known = [one for one in found if one.gain_us is not None]
    gain_us = sum(one.gain_us or 0.0 for one in known)
    total_us = evidence.times.total_us
    return {
        "precision": precision,
        "layers": [{**asdict(one), "gain_us": one.gain_us} for one in found],
        "unknown_layers": len(found) - len(known),
        "gain_us": gain_us,
        "gain_ratio": gain_us / total_us if total_us else None,
    }


def _against(evidence: Evidence, rows: Sequence[LayerRow], changed: Sequence[Conversion]) -> dict[str, Any]:
    """Layers of the same nodes in both engines, what costs most here ahead."""
    other = evidence.against
    if other is None:
        return {}
    times = evidence.times
    precisions = {row.layer.name: row.layer.computes_in for row in rows}
    nodes = {row.layer.name: row.layer.nodes for row in rows}
    layers = [
        {
            "layers": list(group.layers),
            "nodes": list(dict.fromkeys(node for name in group.layers for node in nodes.get(name, ()))),
            "precision": "/".join(
                dict.fromkeys(precisions[name] for name in group.layers if precisions[name])
            ),
            "time_us": group.time_us,
            "other_layers": list(group.others),
            "other_us": group.other_us,
            "more_us": group.time_us - group.other_us,
        }
        for group in _beside(evidence)
        if group.time_us is not None and group.other_us is not None
    ]
    layers.sort(key=lambda row: -float(str(row["more_us"])))
    return {
        "name": other.name,
        "precision": other.precision,
        "engine_us": times.engine_us,
        "other_engine_us": other.times.engine_us,
        "conversions_us": sum(times.layer_us.get(one.layer.name, 0.0) for one in changed),
        "other_conversions_us": other.conversions_us,
        "layers": layers,
    }


def _beside(evidence: Evidence) -> tuple[Beside, ...]:
    """The layers beside those of the other engine; none without one."""
    if evidence.against is None:
        return ()
    return layers_beside(evidence.layers, evidence.times, evidence.against)
