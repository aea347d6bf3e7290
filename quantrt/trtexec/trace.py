# SPDX-License-Identifier: Apache-2.0
"""When the parts of each timed inference began and ended, and the statistics that trtexec makes of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Query", "Stats", "Trace", "percentile", "stats_of"]


@dataclass(frozen=True, kw_only=True)
class Query:
    """One inference, in milliseconds since the first began.

    On a CPU nothing is copied: inputs and outputs take no time, and the call that enqueues also computes.

    Attributes:
        start_enqueue_ms, end_enqueue_ms: the host's call.
        start_h2d_ms, end_h2d_ms: inputs to the device.
        start_compute_ms, end_compute_ms: the engine.
        start_d2h_ms, end_d2h_ms: outputs from the device.
    """

    start_enqueue_ms: float
    end_enqueue_ms: float
    start_h2d_ms: float
    end_h2d_ms: float
    start_compute_ms: float
    end_compute_ms: float
    start_d2h_ms: float
    end_d2h_ms: float

    @property
    def enqueue_ms(self) -> float:
        """How long the host's call took."""
        return self.end_enqueue_ms - self.start_enqueue_ms

    @property
    def h2d_ms(self) -> float:
        """Copying the inputs."""
        return self.end_h2d_ms - self.start_h2d_ms

    @property
    def compute_ms(self) -> float:
        """Computing."""
        return self.end_compute_ms - self.start_compute_ms

    @property
    def d2h_ms(self) -> float:
        """Copying the outputs."""
        return self.end_d2h_ms - self.start_d2h_ms

    @property
    def latency_ms(self) -> float:
        """Copies and computation together, without waiting between them."""
        return self.h2d_ms + self.compute_ms + self.d2h_ms


@dataclass(frozen=True)
class Trace:
    """All inferences of a run, in the order in which they began.

    Attributes:
        warm_up: how many of them are not counted: those that began to compute before the warm-up was over.
    """

    queries: tuple[Query, ...]
    warm_up: int

    @classmethod
    def of(cls, queries: Sequence[Query], warm_up_ms: float) -> Trace:
        """The trace of these inferences, however many streams they ran on."""
        ordered = sorted(queries, key=lambda query: query.start_h2d_ms)
        counted = (index for index, query in enumerate(ordered) if query.start_compute_ms >= warm_up_ms)
        return cls(tuple(ordered), next(counted, len(ordered)))

    @property
    def timed(self) -> tuple[Query, ...]:
        """Those that are counted."""
        return self.queries[self.warm_up :]

    @property
    def wall_ms(self) -> float:
        """From the first counted inference's inputs to the last one's outputs."""
        return max(query.end_d2h_ms for query in self.timed) - self.timed[0].start_h2d_ms

    @property
    def throughput_qps(self) -> float:
        """Inferences per second, whatever their batch."""
        return len(self.timed) / self.wall_ms * 1e3 if self.wall_ms > 0 else math.inf


@dataclass(frozen=True)
class Stats:
    """Of one part over all counted inferences, in milliseconds.

    Attributes:
        percentiles_ms: in the order asked for.
        cv_percent: standard deviation of the population over the mean, in percent.
    """

    min_ms: float
    max_ms: float
    mean_ms: float
    median_ms: float
    percentiles_ms: tuple[float, ...]
    cv_percent: float


def stats_of(values_ms: Sequence[float], percents: Sequence[float]) -> Stats:
    """The statistics of one part; at least one value."""
    ordered = sorted(values_ms)
    mean_ms = statistics.fmean(ordered)
    return Stats(
        min_ms=ordered[0],
        max_ms=ordered[-1],
        mean_ms=mean_ms,
        median_ms=statistics.median(ordered),
        percentiles_ms=tuple(percentile(ordered, percent) for percent in percents),
        cv_percent=statistics.pstdev(ordered) / mean_ms * 100 if mean_ms > 0 else 0.0,
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value at max(n - 1 - int((1 - percent / 100) n), 0) of n ascending ones.

    In single precision, as trtexec counts: in double, 90 of 10 values would be the last.
    """
    count = len(ordered)
    left_out = int((np.float32(1) - np.float32(percent) / np.float32(100)) * np.float32(count))
    return ordered[max(count - 1 - left_out, 0)]
