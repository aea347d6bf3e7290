# SPDX-License-Identifier: Apache-2.0
"""The layers of a candidate with their times, in the form in which precisions are assigned by them.

A library is watched several times, each time newly opened, and the least time of each layer counts: what else
the machine does only adds. Layers that do the same work at the same sizes get the median of their times.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from quantrt.assign.tables.cost_model import TimedEngine, TimedLayer
from quantrt.dtypes import CODE_PRECISIONS
from quantrt.ir.sources import sources_of
from quantrt.model.model import Model
from quantrt.plan.plan import Layer, Plan
from quantrt.report.engine_layers.layer import EngineLayer, elements, runs_nothing
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.report.engine_layers.watched import RUNS, WARMUP_RUNS, WatchedLayers
from quantrt.runtime.layer_times import watch_candidate
from quantrt.tactics.candidates import Candidate

__all__ = ["SESSIONS", "candidate_plan", "timed_engine"]

SESSIONS = 3


def timed_engine(
    candidate: Candidate,
    model: Model,
    inputs: Mapping[str, np.ndarray],
    *,
    latency_ms: float,
    sessions: int = SESSIONS,
    watched: WatchedLayers | None = None,
) -> TimedEngine:
    """The layers of a candidate: one for a CPU is run layer by layer.

    Of one for a GPU they have the times that their kernels were chosen by; those without are watched.

    Args:
        model: that it was made of.
        inputs: of one run.
        latency_ms: of a run that is not watched.
        sessions: how often a library is watched.
        watched: that candidate on these inputs, whose earlier sessions count; those of now are added.

    Raises:
        QuantRtError: its library does not let itself be watched.
    """
    plan = candidate_plan(candidate, model)
    if plan.model.library == "cuda":
        layers = engine_layers(plan, shapes={name: tuple(array.shape) for name, array in inputs.items()})
        return _engine(_timed_on_gpu(candidate, layers, inputs), latency_ms)
    watched = watched or WatchedLayers(plan, inputs)
    while len(watched.sessions) < sessions:
        watched.watch()
    times_ms = _alike(watched.layers, watched.least_ms())
    return _engine(((layer, times_ms.get(layer.name, 0.0)) for layer in watched.layers), latency_ms)


def _engine(timed: Iterable[tuple[EngineLayer, float]], latency_ms: float) -> TimedEngine:
    rows = tuple(timed)
    makers = {form.name: place for place, (layer, _) in enumerate(rows) for form in layer.outputs}
    return TimedEngine(tuple(_timed(layer, time_ms, makers) for layer, time_ms in rows), latency_ms)


def _timed_on_gpu(
    candidate: Candidate, layers: Sequence[EngineLayer], inputs: Mapping[str, np.ndarray]
) -> Iterator[tuple[EngineLayer, float]]:
    """Every layer with its milliseconds: of its tactic as it was timed, else in the fastest watched run."""
    untimed = {layer.name for layer in layers if layer.median_us is None and not runs_nothing(layer)}
    watched: Mapping[str, float] = {}
    if untimed:
        times = watch_candidate(candidate.executor, inputs, runs=RUNS, warmup_runs=WARMUP_RUNS)
        watched = dict(zip(times.names, map(min, times.times_ms), strict=True))
    for layer in layers:
        known_ms = 0.0 if layer.median_us is None else layer.median_us / 1e3
        yield layer, watched.get(layer.name, 0.0) if layer.name in untimed else known_ms


def _alike(layers: Sequence[EngineLayer], times_ms: Mapping[str, float]) -> dict[str, float]:
    """For each layer the median time of those that do the same work."""
    groups: dict[str, list[float]] = {}
    for layer in layers:
        groups.setdefault(_work(layer), []).append(times_ms.get(layer.name, 0.0))
    return {layer.name: statistics.median(groups[_work(layer)]) for layer in layers}


def _work(layer: EngineLayer) -> str:
    """What a layer does, at which sizes, in which precision."""
    forms = [(form.dims, form.dtype, form.layout) for form in (*layer.inputs, *layer.outputs)]
    facts = (layer.kind, layer.tactic, layer.computes_in, forms, dict(layer.weights), dict(layer.attributes))
    return repr(facts)


def _timed(layer: EngineLayer, time_ms: float, makers: Mapping[str, int]) -> TimedLayer:
    reads = tuple(
        (makers[form.name], elements(form.dims) or 0, form.dtype)
        for form in layer.inputs
        if form.name in makers
    )
    is_alone = layer.median_us is not None
    return TimedLayer(layer.nodes, time_ms, reads, is_alone and layer.computes_in in CODE_PRECISIONS)


def candidate_plan(candidate: Candidate, model: Model) -> Plan:
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
