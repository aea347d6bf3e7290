# SPDX-License-Identifier: Apache-2.0
"""The tactic of every region, and what is known of those that were not taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.plan.cudnn_plan import CudnnPlan
from quantrt.tactics.cuda.tactic import Tactic
from quantrt.tactics.cuda.timing.timing import Timing
from quantrt.tactics.cuda.timing.timing_cache import TimingCache

__all__ = ["Candidate", "Choice", "Choices"]


@dataclass(frozen=True)
class Candidate:
    """One tactic of a workload and what came of it.

    Attributes:
        timing: None where it was not timed.
        reason: why it cannot be used, or was not timed; empty for one that was timed.
    """

    source: str
    name: str
    timing: Timing | None = None
    reason: str = ""


@dataclass(frozen=True)
class Choice:
    """The tactic of one region.

    Attributes:
        median_us: what it takes; None where nothing was timed.
        origin: "timed", "cached", "untimed" (checked, but taken for its place in the list) or "estimated"
            (for a device that is not here; `median_us` is an estimate then).
        key: of the workload.
    """

    tactic: Tactic
    median_us: float | None
    origin: str
    key: str


@dataclass(frozen=True)
class Choices:
    """What tuning decided.

    Attributes:
        by_region: the choice for every workload, by its region.
        kernels: machine code of every kernel of the chosen tactics.
        candidates: by the key of a workload, every tactic, timed ones first, from fast to slow.
        cache: all timings, old and new.
        plans: of cuDNN, of the chosen tactics, by key; none on a CPU.
        compile_s, timing_s: wall-clock seconds spent.
        notes: what did not go as asked, for the report.
    """

    by_region: Mapping[str, Choice]
    kernels: Mapping[KernelSpec, CompiledKernel]
    candidates: Mapping[str, tuple[Candidate, ...]]
    cache: TimingCache
    compile_s: float = 0.0
    timing_s: float = 0.0
    notes: tuple[str, ...] = field(default=())
    plans: Mapping[str, CudnnPlan] = field(default_factory=dict)

    @property
    def tactics(self) -> dict[str, Tactic]:
        """The chosen tactic of every region."""
        return {region: choice.tactic for region, choice in self.by_region.items()}

    @property
    def total_us(self) -> float:
        """All regions together, where a time is known."""
        return sum(choice.median_us or 0.0 for choice in self.by_region.values())
