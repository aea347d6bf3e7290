# SPDX-License-Identifier: Apache-2.0
"""The layers of a candidate with their times, in the form in which precisions are assigned by them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from quantrt.assign.cost_model import TimedEngine, TimedLayer
from quantrt.ir.sources import sources_of
from quantrt.model.model import Model
from quantrt.plan.plan import Layer, Plan
from quantrt.report.engine_layer import EngineLayer, elements
from quantrt.report.engine_layers import engine_layers
from quantrt.runtime.layer_times import time_plan
from quantrt.tactics.candidates import Candidate

__all__ = ["timed_engine"]

RUNS = 15
"""The fastest of each layer counts, or the mean where no single run is told."""

WARMUP_RUNS = 3


def timed_engine(
    candidate: Candidate, model: Model, inputs: Mapping[str, np.ndarray], *, latency_ms: float
) -> TimedEngine:
    """Run a candidate for a CPU layer by layer.

    Args:
        model: that it was made of.
        inputs: of one run.
        latency_ms: of a run that is not watched.

    Raises:
        QuantRtError: its library does not let itself be watched.
    """
    plan = _plan(candidate, model)
    layers = engine_layers(plan, shapes={name: tuple(array.shape) for name, array in inputs.items()})
    watched = time_plan(plan, inputs, runs=RUNS, warmup_runs=WARMUP_RUNS)
    times_ms = {name: min(row) for name, row in zip(watched.names, watched.times_ms, strict=True)}
    makers = {form.name: place for place, layer in enumerate(layers) for form in layer.outputs}
    return TimedEngine(
        tuple(_timed(layer, times_ms.get(layer.name, 0.0), makers) for layer in layers), latency_ms
    )


def _timed(layer: EngineLayer, time_ms: float, makers: Mapping[str, int]) -> TimedLayer:
    reads = tuple(
        (makers[form.name], elements(form.dims) or 0, form.dtype)
        for form in layer.inputs
        if form.name in makers
    )
    return TimedLayer(layer.nodes, time_ms, reads)


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
