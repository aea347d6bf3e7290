# SPDX-License-Identifier: Apache-2.0
"""The layers of a candidate for a CPU, and the sessions in which its library was watched running them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from quantrt.plan.plan import Plan
from quantrt.report.engine_layers.layer import EngineLayer
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.runtime.executor import Executor
from quantrt.runtime.layer_times import LayerTimes, open_watched, time_plan, time_watched

__all__ = ["WatchedLayers"]

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
        if self._layers is None and self._plan.model.library == "openvino":
            self._watch_first()
            return
        if self._layers is None:
            self._layers = engine_layers(self._plan, shapes=self._shapes)
        times = time_plan(self._plan, self._inputs, runs=RUNS, warmup_runs=WARMUP_RUNS, beside=self._beside)
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

    @property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(array.shape) for name, array in self._inputs.items()}

    def _watch_first(self) -> None:
        """What OpenVINO compiled to be watched tells the layers too."""
        from quantrt.report.engine_layers.openvino import layers_compiled  # openvino is optional

        with open_watched(self._plan, self._beside) as executor:
            self._layers = layers_compiled(executor, self._plan, self._shapes)
            self.sessions.append(
                time_watched(executor, self._plan, self._inputs, runs=RUNS, warmup_runs=WARMUP_RUNS)
            )
