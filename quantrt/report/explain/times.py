# SPDX-License-Identifier: Apache-2.0
"""How long the layers of an engine take: measured here, measured when it was built, or estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantrt.config import BenchConfig
from quantrt.plan.plan import Plan
from quantrt.report.built.shipped_row import shipped_row
from quantrt.report.engine_layers.layer import EngineLayer
from quantrt.runtime.engine import Engine
from quantrt.runtime.layer_times import LayerTimes, time_layers
from quantrt.tactics.timing import time_interleaved

__all__ = ["AT_BUILD", "ESTIMATED", "HERE", "Times", "measured_times", "stored_times"]

HERE = "measured here"
AT_BUILD = "measured at build"
ESTIMATED = "estimated"

RUNS = 30
WARMUP_RUNS = 3
TIMING = BenchConfig(warmup_s=0.1, duration_s=0.3, max_duration_s=2.0)
"""Of whole runs, for what a report says beside its layers; `quantrt bench` takes longer."""


@dataclass(frozen=True, kw_only=True)
class Times:
    """Microseconds.

    Attributes:
        layer_us: by layer; a layer without a time is not in it.
        basis: HERE, AT_BUILD or ESTIMATED, the weakest of those that occur.
        method: how layers were timed, one phrase.
        engine_us: of a whole run of the engine itself, with nothing watched; None where it is not known.
        runs: of the layers; 0 where they were not timed here.
    """

    layer_us: Mapping[str, float]
    basis: str
    method: str
    engine_us: float | None
    runs: int = 0

    @property
    def total_us(self) -> float:
        """All layers together."""
        return sum(self.layer_us.values())


def measured_times(engine: Engine, inputs: Mapping[str, np.ndarray]) -> tuple[Times, LayerTimes]:
    """Times of an engine that can run here, for one run of `inputs`.

    Raises:
        DataError: an input's name, element type or shape is wrong.
    """
    watched = time_layers(engine, inputs, runs=RUNS, warmup_runs=WARMUP_RUNS)
    whole = time_interleaved({"engine": engine.executor.prepare(inputs)}, TIMING)["engine"]
    layer_us = {name: latency_ms * 1e3 for name, latency_ms in watched.median_ms.items()}
    times = Times(
        layer_us=layer_us,
        basis=HERE,
        method=f"{watched.method}; {RUNS} runs",
        engine_us=whole.median_ms * 1e3,
        runs=RUNS,
    )
    return times, watched


def stored_times(plan: Plan, layers: Sequence[EngineLayer]) -> Times:
    """Times that an engine for a GPU holds: of each region alone, with cold caches."""
    measured = {layer.name: layer.median_us for layer in layers if layer.median_us is not None}
    guessed = {layer.name: float(layer.attributes["estimated_us"]) for layer in layers if _is_guessed(layer)}
    if guessed:
        basis, method = ESTIMATED, "the roofline of the GPU that the engine was planned for"
    else:
        basis, method = AT_BUILD, "each region alone, with cold caches"
    return Times(
        layer_us={**measured, **guessed}, basis=basis, method=method, engine_us=_built_us(plan.report)
    )


def _is_guessed(layer: EngineLayer) -> bool:
    return layer.median_us is None and "estimated_us" in layer.attributes


def _built_us(report: Mapping[str, Any]) -> float | None:
    """What the engine took when it was chosen."""
    latency = (shipped_row(report) or {}).get("latency")
    return None if latency is None else float(latency["median_ms"]) * 1e3
