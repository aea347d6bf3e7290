# SPDX-License-Identifier: Apache-2.0
"""What the candidates of a build took node by node, in its report: what was not shipped, and why.

    {"shapes": {"x": [1, 3, 224, 224]}, "node_us": [12.1, 0, 3.4, null, ...], "conversions": 3,
     "conversions_us": 8.2}

`node_us` has one figure for every node of the canonical model, in its order: a layer's time stands with the
first node that it computes, and its other nodes have 0; null where no layer was found to compute a node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quantrt.assign.choose import Choice
from quantrt.errors import QuantRtError
from quantrt.ir.sources import sources_of
from quantrt.model.model import Model
from quantrt.plan.plan import Layer, Plan
from quantrt.report.engine_layer import EngineLayer, Rival, is_conversion
from quantrt.report.engine_layers import engine_layers
from quantrt.runtime.layer_times import time_plan
from quantrt.tactics.candidates import Candidate
from quantrt.tactics.timing import Latency

__all__ = ["candidate_times", "told_candidates", "with_candidates"]

log = logging.getLogger(__name__)

RUNS = 9
"""Of each candidate, one after the other; the fastest counts, or the mean where no single run is told."""

WARMUP_RUNS = 2
DIGITS = 1
"""Of microseconds: a report is part of the engine file."""


def told_candidates(
    candidates: Mapping[str, Candidate], latencies: Mapping[str, Latency], choice: Choice
) -> tuple[str, ...]:
    """Whose layers a report tells: what was shipped, its yardstick, and of every precision the fastest."""
    names = [choice.winner, choice.baseline]
    for precision in dict.fromkeys(candidate.spec.precision for candidate in candidates.values()):
        same = [name for name, candidate in candidates.items() if candidate.spec.precision == precision]
        timed = [name for name in same if name in latencies]
        names.append(min(timed, key=lambda name: latencies[name].median_ms) if timed else same[0])
    return tuple(dict.fromkeys(names))


def candidate_times(
    candidates: Mapping[str, Candidate],
    model: Model,
    inputs: Mapping[str, np.ndarray],
    on_progress: Callable[[int], None] = lambda done: None,
) -> dict[str, dict[str, Any]]:
    """By name, as the module says; without those that cannot be looked into, which is logged."""
    found = {}
    for number, (name, candidate) in enumerate(candidates.items()):
        try:
            found[name] = _times(_plan(candidate, model), inputs)
        except QuantRtError as error:
            log.warning("the layers of %s were not timed: %s", name, error.message)
        on_progress(number + 1)
    return found


def with_candidates(
    plan: Plan, layers: Sequence[EngineLayer], shapes: Mapping[str, Sequence[int]]
) -> tuple[EngineLayer, ...]:
    """The layers with what the candidates of the build took for their nodes: `median_us` and rivals.

    Attribute "beside_us" has the fastest of the others in each precision.

    Args:
        shapes: of the inputs that the layers are described for: times at others say nothing of them.
    """
    wanted = {name: list(shape) for name, shape in shapes.items()}
    shipped = plan.report.get("verdict", {}).get("shipped")
    rows = [
        row
        for row in plan.report.get("candidates", ())
        if (row.get("layer_times") or {}).get("shapes") == wanted
    ]
    own = next((row for row in rows if row["name"] == shipped), None)
    others = [row for row in rows if row is not own]
    numbers = {layer.name: number for number, layer in enumerate(plan.layers)}
    return tuple(_beside(layer, own, others, numbers) for layer in layers)


def _beside(
    layer: EngineLayer,
    own: Mapping[str, Any] | None,
    others: Sequence[Mapping[str, Any]],
    numbers: Mapping[str, int],
) -> EngineLayer:
    nodes = [numbers[node] for node in layer.nodes]
    rivals: list[Rival] = []
    fastest: dict[str, float] = {}
    for row in others:
        time_us = _time_of(nodes, row)
        if time_us is not None:
            rivals.append(Rival(name=row["name"], median_us=time_us, reason=row["reason"]))
            fastest[row["precision"]] = min(time_us, fastest.get(row["precision"], time_us))
    attributes = {**layer.attributes, "beside_us": fastest} if fastest else layer.attributes
    median_us = layer.median_us if own is None else _time_of(nodes, own)
    return replace(layer, median_us=median_us, rivals=(*layer.rivals, *rivals), attributes=attributes)


def _time_of(nodes: Sequence[int], row: Mapping[str, Any]) -> float | None:
    """Microseconds of some nodes in one candidate; None where one of them is not told, or none took any."""
    times = [row["layer_times"]["node_us"][number] for number in nodes]
    if any(time_us is None for time_us in times):
        return None
    return sum(times) or None


def _plan(candidate: Candidate, model: Model) -> Plan:
    """A plan of the candidate, as far as its layers need one."""
    rows = (
        Layer(name=node.name or "", op_type=node.op_type, precision="", reason="", sources=sources_of(node))
        for node in model.graph.graph
    )
    return Plan(
        model=candidate.model,
        options=candidate.options,
        inputs=model.inputs,
        outputs=model.outputs,
        precision=candidate.spec.precision,
        layers=tuple(rows),
        fingerprint=model.fingerprint,
        device={},
    )


def _times(plan: Plan, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    shapes = {name: tuple(array.shape) for name, array in inputs.items()}
    layers = engine_layers(plan, shapes=shapes)
    if plan.model.library == "cuda":
        layer_us = {layer.name: layer.median_us or 0.0 for layer in layers}
    else:
        watched = time_plan(plan, inputs, runs=RUNS, warmup_runs=WARMUP_RUNS)
        rows_ms = zip(watched.names, watched.times_ms, strict=True)
        layer_us = {name: min(row) * 1e3 for name, row in rows_ms}
    node_us: dict[str, float] = {}
    for layer in layers:
        time_us = layer_us.get(layer.name, 0.0)
        for number, node in enumerate(layer.nodes):
            node_us[node] = node_us.get(node, 0.0) + (time_us if number == 0 else 0.0)
    converting_us = sum(layer_us.get(layer.name, 0.0) for layer in layers if is_conversion(layer))
    rows = [node_us.get(layer.name) for layer in plan.layers]
    return {
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "node_us": [None if time_us is None else round(time_us, DIGITS) for time_us in rows],
        "conversions": sum(map(is_conversion, layers)),
        "conversions_us": round(converting_us, DIGITS),
    }
