# SPDX-License-Identifier: Apache-2.0
"""What the stages of one build found, for its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quantrt.assign.choose import Choice
from quantrt.calibrate.stats import Stats
from quantrt.config import BuildConfig
from quantrt.model.model import Model
from quantrt.quantize.cache_match import CacheMatch
from quantrt.tactics.candidates import Candidate, Rejected
from quantrt.tactics.timing import Latency

__all__ = ["BuildFacts"]


@dataclass(frozen=True)
class BuildFacts:
    """What the stages of one build found.

    Attributes:
        cache: the calibration cache that scales were taken from.
        checked_on: what accuracy was measured on.
        latencies: of the finalists; the other candidates were slower in the first heat.
        timed_shapes: of the inputs that they are of; none where nothing was timed.
        memory: bytes on the GPU for the timed inputs, by candidate; None on a CPU.
        layer_times: of some candidates, as quantrt.report.built.candidate_times tells them.
        notes: what the user should know, whatever was shipped.
        int4_nodes: names of those whose weights alone are in 4 bits in a candidate "int4".
        peak_memory: of the process that built it, as quantrt.runtime.peak_memory tells it.
        mixed: how precisions were mixed, as quantrt.report.built.mixed tells it; None where they were not.
    """

    model: Model
    config: BuildConfig
    device: Mapping[str, Any]
    stats: Stats | None
    checked_on: str
    candidates: Mapping[str, Candidate]
    rejected: tuple[Rejected, ...]
    latencies: Mapping[str, Latency]
    choice: Choice
    timed_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    memory: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    peak_memory: Mapping[str, int | None] = field(default_factory=dict)
    layer_times: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cache: CacheMatch | None = None
    mixed: Mapping[str, Any] | None = None
    int4_nodes: frozenset[str] = frozenset()

    @property
    def is_random(self) -> bool:
        """Whether ranges are of random data, and mean nothing."""
        origin = None if self.cache is None else self.cache.cache.origin
        return any(source is not None and source.is_random for source in (self.stats, origin))

    @property
    def winner(self) -> Candidate:
        """What is shipped."""
        return self.candidates[self.choice.winner]
