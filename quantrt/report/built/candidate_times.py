# SPDX-License-Identifier: Apache-2.0
"""What the candidates of a build took layer by layer, in its report: what was not shipped, and why.

    {"shapes": {"x": [1, 3, 224, 224]}, "layers": [[12.1, [0, 1]], [3.4, [2]], [null, [4]], ...],
     "conversions": 3, "conversions_us": 8.2, "in_codes": [0, 1]}

`layers` has the microseconds of every layer that computes nodes of the canonical model, and these by their
places in it; null for a layer that was not timed. `in_codes` has the nodes that are computed in codes, placed
here or as the model came. Candidates fuse differently, so they are compared by groups of layers that compute
the same nodes (quantrt.report.engine_layers.graph), never node by node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quantrt.assign.choose import Choice
from quantrt.dtypes import CODE_PRECISIONS
from quantrt.errors import QuantRtError
from quantrt.model.model import Model
from quantrt.plan.plan import Plan
from quantrt.report.built.shipped_row import shipped_row
from quantrt.report.engine_layers.graph import align_names
from quantrt.report.engine_layers.layer import EngineLayer, Rival, is_conversion, runs_nothing
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.report.engine_layers.timed import candidate_plan
from quantrt.report.engine_layers.watched import WatchedLayers
from quantrt.tactics.candidates import Candidate
from quantrt.tactics.timing import Latency

__all__ = [
    "candidate_times",
    "has_layers",
    "together_us",
    "told_candidates",
    "told_layers",
    "with_candidates",
]

log = logging.getLogger(__name__)

CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")
"""Kinds of layers between floats and codes, which read or write floats."""

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
    *,
    watched: Mapping[str, WatchedLayers] | None = None,
) -> dict[str, dict[str, Any]]:
    """By name, as the module says; without those that cannot be looked into, which is logged.

    Args:
        watched: by name, candidates that were watched on these inputs before, and are not again.
    """
    found = {}
    for number, (name, candidate) in enumerate(candidates.items()):
        try:
            plan = candidate_plan(candidate, model)
            known = (watched or {}).get(name) or WatchedLayers(plan, inputs, beside=candidate.executor)
            found[name] = _times(plan, inputs, known)
        except QuantRtError as error:
            log.warning("the layers of %s were not timed: %s", name, error.message)
        on_progress(number + 1)
    return found


def with_candidates(
    plan: Plan, layers: Sequence[EngineLayer], shapes: Mapping[str, Sequence[int]]
) -> tuple[EngineLayer, ...]:
    """The layers with what the candidates of the build took for their nodes: `median_us` and rivals.

    Attribute "beside_us" has the fastest of the others in each precision. Where another candidate fuses what
    are several layers here, each has as large a part of the time there as of theirs together here, and
    "beside_layers" says how many share it.

    Args:
        shapes: of the inputs that the layers are described for: times at others say nothing of them.
    """
    wanted = {name: list(shape) for name, shape in shapes.items()}
    shipped = shipped_row(plan.report)
    rows = [
        row
        for row in plan.report.get("candidates", ())
        if has_layers(row) and row["layer_times"]["shapes"] == wanted
    ]
    own = shipped if shipped in rows else None
    names = [layer.name for layer in plan.layers]
    timed = list(layers) if own is None else _with_own(layers, told_layers(own, names))
    found = [dict[str, tuple[float, int]]() for _ in timed]
    for row in rows:
        if row is not own:
            for place, part in _parts(timed, told_layers(row, names)).items():
                found[place][row["name"]] = part
    by_name = {row["name"]: row for row in rows}
    return tuple(_beside(layer, parts, by_name) for layer, parts in zip(timed, found, strict=True))


def has_layers(row: Mapping[str, Any]) -> bool:
    """Whether a candidate's row tells its layers, in the form of today."""
    return "layers" in (row.get("layer_times") or {})


def told_layers(row: Mapping[str, Any], names: Sequence[str]) -> list[tuple[float | None, tuple[str, ...]]]:
    """(microseconds, nodes) of the layers of a candidate's row.

    Args:
        names: of the canonical model's nodes.
    """
    return [
        (time_us, tuple(names[number] for number in numbers))
        for time_us, numbers in row["layer_times"]["layers"]
    ]


def together_us(times_us: Sequence[float | None]) -> float | None:
    """Their sum; None without any, or where one is not known."""
    known = [time_us for time_us in times_us if time_us is not None]
    return sum(known) if known and len(known) == len(times_us) else None


def _with_own(
    layers: Sequence[EngineLayer], told: Sequence[tuple[float | None, tuple[str, ...]]]
) -> list[EngineLayer]:
    """The layers with their times at the build, where it had the same layers."""
    found = list(layers)
    for group in align_names([layer.nodes for layer in layers], [nodes for _, nodes in told]):
        if len(group.left) == len(group.right) == 1:
            (place,), (other,) = group.left, group.right
            found[place] = replace(layers[place], median_us=told[other][0])
    return found


def _parts(
    layers: Sequence[EngineLayer], told: Sequence[tuple[float | None, tuple[str, ...]]]
) -> dict[int, tuple[float, int]]:
    """By place of a layer: its part of another candidate's microseconds, and how many layers share them."""
    found: dict[int, tuple[float, int]] = {}
    for group in align_names([layer.nodes for layer in layers], [nodes for _, nodes in told]):
        here_us = together_us([layers[place].median_us for place in group.left])
        there_us = together_us([told[place][0] for place in group.right])
        if there_us is not None and len(group.left) == 1:
            found[group.left[0]] = (there_us, 1)
        elif there_us is not None and here_us:
            for place in group.left:
                part_us = there_us * (layers[place].median_us or 0.0) / here_us
                found[place] = (part_us, len(group.left))
    return found


def _beside(
    layer: EngineLayer, parts: Mapping[str, tuple[float, int]], rows: Mapping[str, Mapping[str, Any]]
) -> EngineLayer:
    rivals: list[Rival] = []
    fastest: dict[str, tuple[float, int]] = {}
    for name, (time_us, sharing) in parts.items():
        reason, precision = rows[name]["reason"], rows[name]["precision"]
        if sharing > 1:
            reason = f"{reason} (its part of {sharing} layers together)"
        rivals.append(Rival(name=name, median_us=time_us, reason=reason))
        fastest[precision] = min((time_us, sharing), fastest.get(precision, (time_us, sharing)))
    if not fastest:
        return layer
    beside = {
        "beside_us": {precision: time_us for precision, (time_us, _) in fastest.items()},
        "beside_layers": {precision: count for precision, (_, count) in fastest.items() if count > 1},
    }
    return replace(layer, rivals=(*layer.rivals, *rivals), attributes={**layer.attributes, **beside})


def _times(plan: Plan, inputs: Mapping[str, np.ndarray], watched: WatchedLayers) -> dict[str, Any]:
    shapes = {name: tuple(array.shape) for name, array in inputs.items()}
    layer_us: Mapping[str, float | None]
    if plan.model.library == "cuda":
        layers = engine_layers(plan, shapes=shapes)
        layer_us = {layer.name: 0.0 if runs_nothing(layer) else layer.median_us for layer in layers}
    else:
        layers = watched.layers
        layer_us = {name: time_ms * 1e3 for name, time_ms in watched.least_ms().items()}
    numbers = {layer.name: number for number, layer in enumerate(plan.layers)}
    converting_us = sum(layer_us.get(layer.name) or 0.0 for layer in layers if is_conversion(layer))
    return {
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "layers": [
            [_rounded(layer_us.get(layer.name)), [numbers[node] for node in layer.nodes]]
            for layer in layers
            if layer.nodes
        ],
        "conversions": sum(map(is_conversion, layers)),
        "conversions_us": round(converting_us, DIGITS),
        "in_codes": sorted(
            {numbers[node] for layer in layers if _is_on_codes(layer) for node in layer.nodes}
        ),
    }


def _is_on_codes(layer: EngineLayer) -> bool:
    return layer.computes_in in CODE_PRECISIONS and layer.kind not in CONVERSIONS


def _rounded(time_us: float | None) -> float | None:
    return None if time_us is None else round(time_us, DIGITS)
