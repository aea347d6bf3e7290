# SPDX-License-Identifier: Apache-2.0
"""When the parts of each timed inference began and ended, and the statistics that trtexec makes of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quantrt.runtime.query import Query

__all__ = ["Stats", "Trace", "percentile", "stats_of"]


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
