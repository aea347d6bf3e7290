# SPDX-License-Identifier: Apache-2.0
"""The layers of a candidate for a CPU, and the sessions in which its library was watched running them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from quantrt.plan.plan import Plan
from quantrt.report.engine_layers.layer import EngineLayer
from quantrt.runtime.executor import Executor
from quantrt.runtime.layer_times import (
    LayerTimes,
    open_watched,
    time_plan,
    time_watched,
    time_with_graph,
)

__all__ = ["WatchedLayers", "first_session"]

RUNS = 7
"""Of a session: the fastest counts, or the mean where no single run is told."""

WARMUP_RUNS = 2


class WatchedLayers:
    """What a library tells of one candidate at one shape of inputs; nothing before it is asked.

    Args:
        inputs: of one run.
        layers: where they are known already.
        beside: the candidate's open executor, where there is one.

    Attributes:
        sessions: so far.
    """

    def __init__(
        self,
        plan: Plan,
        inputs: Mapping[str, np.ndarray],
        layers: tuple[EngineLayer, ...] | None = None,
        *,
        beside: Executor | None = None,
    ) -> None:
        self._beside = beside
        self._plan = plan
        self._inputs = inputs
        self._layers = layers
        self.sessions: list[LayerTimes] = []

    @property
    def layers(self) -> tuple[EngineLayer, ...]:
        """In the order in which they run."""
        if self._layers is None:
            self.watch()
        return self._layers or ()

    def watch(self) -> None:
        """Add a session: the library opens the model again, and runs it layer by layer.

        Raises:
            QuantRtError: its library does not let itself be watched.
        """
        if self._layers is None:
            self._layers, times = first_session(self._plan, self._inputs, self._beside)
        else:
            times = time_plan(
                self._plan, self._inputs, runs=RUNS, warmup_runs=WARMUP_RUNS, beside=self._beside
            )
        self.sessions.append(times)

    def least_ms(self) -> dict[str, float]:
        """The least time of each layer, in milliseconds."""
        found: dict[str, float] = {}
        for session in self.sessions:
            for name, row in zip(session.names, session.times_ms, strict=True):
                found[name] = min(found.get(name, math.inf), *row)
        return found

    def anew(self) -> WatchedLayers:
        """The same layers without the sessions."""
        return WatchedLayers(self._plan, self._inputs, self.layers, beside=self._beside)


def first_session(
    plan: Plan, inputs: Mapping[str, np.ndarray], beside: Executor | None
) -> tuple[tuple[EngineLayer, ...], LayerTimes]:
    """The layers too, of what was opened to be watched: a library opens the model once for both."""
    shapes = {name: tuple(array.shape) for name, array in inputs.items()}
    if plan.model.library == "onnxruntime":
        from quantrt.report.engine_layers.onnxruntime import layers_ran  # onnxruntime is optional

        graph, events, times = time_with_graph(plan, inputs, runs=RUNS, warmup_runs=WARMUP_RUNS)
        return layers_ran(plan, graph, events, shapes), times
    from quantrt.report.engine_layers.openvino import layers_compiled  # openvino is optional

    with open_watched(plan, beside) as executor:
        layers = layers_compiled(executor, plan, shapes)
        return layers, time_watched(executor, plan, inputs, runs=RUNS, warmup_runs=WARMUP_RUNS)
