# SPDX-License-Identifier: Apache-2.0
"""How long every layer of an engine takes, run by run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["LayerTimes"]


@dataclass(frozen=True, kw_only=True)
class LayerTimes:
    """Milliseconds of every layer in every run.

    Watching layers slows a run: `run_ms` is of the watched runs, and longer than the engine's latency.

    Attributes:
        names: layers as `quantrt.report.engine_layers` names them, in the order in which they ran.
        times_ms: for each of `names`, its time in each run; 0 where the library ran nothing for it.
        run_ms: of each whole run, inputs in to outputs out, with the watching in it.
        method: how the times were taken, one phrase.
    """

    names: tuple[str, ...]
    times_ms: tuple[tuple[float, ...], ...]
    run_ms: tuple[float, ...]
    method: str

    @property
    def median_ms(self) -> Mapping[str, float]:
        """The median over the runs, by the layer's name."""
        rows = zip(self.names, self.times_ms, strict=True)
        return {name: statistics.median(row) for name, row in rows}
