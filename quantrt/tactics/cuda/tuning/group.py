# SPDX-License-Identifier: Apache-2.0
"""Regions that do the same work: one set of verdicts, one choice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from quantrt.errors import InternalError
from quantrt.gpu import GpuFacts
from quantrt.ir.collector import without_collector
from quantrt.kernels.kernel import KernelSpec
from quantrt.kernels.kernel_text import kernel_key
from quantrt.plan.cudnn_plan import graph_key
from quantrt.tactics.cuda.tactic import Rejected, Tactic, TensorFacts, Workload
from quantrt.tactics.cuda.timing.timing import Timing
from quantrt.tactics.cuda.timing.timing_cache import Entry, TimingCache
from quantrt.tactics.cuda.timing.trial import Verdict
from quantrt.tactics.cuda.tuning.choices import Candidate, Choice
from quantrt.tactics.cuda.tuning.estimate import estimate_us
from quantrt.tactics.cuda.tuning.prune import Pruned

__all__ = ["Group", "make_groups", "work_key"]

REFERENCE_REASON = "the reference: taken only where nothing else is right"
UNTRIED_REASON = "not timed"


@dataclass
class Group:
    """Workloads with equal keys.

    Attributes:
        members: all of them; the first stands for the others.
        pruned: tactics of the first.
        verdicts: what is known of them, by name; grows while tuning.
        cached: names of those that the timing cache knew.
    """

    key: str
    members: list[Workload]
    pruned: Pruned
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    cached: frozenset[str] = frozenset()

    @property
    def workload(self) -> Workload:
        """The one that is tried."""
        return self.members[0]

    @property
    def pending(self) -> list[Tactic]:
        """Tactics of which nothing is known yet, the likely fastest first."""
        return [tactic for tactic in self.pruned.kept if tactic.name not in self.verdicts]

    @property
    def reference(self) -> Tactic:
        """The tactic of last resort.

        Raises:
            InternalError: there is none.
        """
        if self.pruned.reference is None:
            raise InternalError(f"region '{self.workload.region}' has no reference tactic")
        return self.pruned.reference

    def know(self, cache: TimingCache) -> None:
        """Take over what the cache knows."""
        entry = cache.entries.get(self.key)
        known = {} if entry is None else entry.tactics
        names = [tactic.name for tactic in (*self.pruned.kept, self.reference) if tactic.name in known]
        self.verdicts.update({name: _verdict(known[name]) for name in names})
        self.cached = frozenset(names)

    def choose(self, gpu: GpuFacts | None) -> Choice:
        """The fastest tactic that was timed; else the first that was right; else the reference.

        Args:
            gpu: of a device that is not here: there the best estimate comes before the reference.
        """
        timed = [
            (timing.median_us * tactic.handicap, number, tactic)
            for number, tactic in enumerate(self.pruned.kept)
            if (timing := self._timing(tactic)) is not None
        ]
        if timed:
            return self._timed(min(timed, key=lambda row: row[:2])[2])
        right = [tactic for tactic in self.pruned.kept if self.verdicts.get(tactic.name) == Verdict()]
        if right:
            return self._timed(right[0])
        if gpu is not None:
            estimates = [
                (estimate_us(self.workload, tactic, gpu), number, tactic)
                for number, tactic in enumerate((*self.pending, self.reference))
            ]
            median_us, _, tactic = min(estimates, key=lambda row: row[:2])
            return Choice(tactic, median_us, "estimated", self.key)
        return self._timed(self.reference)

    def table(self) -> tuple[Candidate, ...]:
        """Every tactic: the timed from fast to slow, then the rest in their order."""
        rows = [self._row(tactic) for tactic in self.pruned.kept]
        rows += [Candidate(found.source, found.name, None, found.reason) for found in self.pruned.rejected]
        if self.pruned.reference is not None:
            reference = self._row(self.pruned.reference)
            rows.append(
                reference
                if reference.timing
                else Candidate(reference.source, reference.name, None, REFERENCE_REASON)
            )
        timed = [row for row in rows if row.timing is not None]
        timed.sort(key=lambda row: row.timing.median_us if row.timing else 0.0)
        return (*timed, *(row for row in rows if row.timing is None))

    def entry(self) -> Entry:
        """What lasts of the verdicts, for the timing cache."""
        lasting = {
            name: verdict.timing or verdict.reason
            for name, verdict in self.verdicts.items()
            if verdict.timing or (verdict.reason and verdict.is_lasting)
        }
        workload = self.workload
        weight = "" if workload.weight is None else f"{workload.weight.dtype}{list(workload.weight.shape)}"
        inputs = tuple(_text(facts) for facts in workload.inputs)
        return Entry(type(workload.formula).__name__, weight, inputs, workload.outputs, lasting)

    def _timing(self, tactic: Tactic) -> Timing | None:
        return self.verdicts.get(tactic.name, Verdict()).timing

    def _timed(self, tactic: Tactic) -> Choice:
        timing = self._timing(tactic)
        if timing is None:
            return Choice(tactic, None, "untimed", self.key)
        origin = "cached" if tactic.name in self.cached else "timed"
        return Choice(tactic, timing.median_us, origin, self.key)

    def _row(self, tactic: Tactic) -> Candidate:
        verdict = self.verdicts.get(tactic.name, Verdict(reason=UNTRIED_REASON))
        return Candidate(tactic.source, tactic.name, verdict.timing, verdict.reason or "")


@without_collector()
def make_groups(
    workloads: Sequence[Workload],
    tactics: Mapping[str, Sequence[Tactic | Rejected]],
    prune: Callable[[Workload, Sequence[Tactic | Rejected]], Pruned],
) -> list[Group]:
    """Workloads by key, in the order in which keys first occur.

    Args:
        tactics: of every workload, by its region.
    """
    groups: dict[str, Group] = {}
    kernel_keys = cache(kernel_key)  # of thousands, most again and again
    for workload in workloads:
        key = work_key(workload, tactics[workload.region], kernel_keys)
        if key in groups:
            groups[key].members.append(workload)
        else:
            groups[key] = Group(key, [workload], prune(workload, tactics[workload.region]))
    return list(groups.values())


def work_key(
    workload: Workload,
    tactics: Sequence[Tactic | Rejected],
    kernel_keys: Callable[[KernelSpec], str] = kernel_key,
) -> str:
    """A digest of the work and of its kernels and graphs, which may hold what the work does not show."""
    kernels = [(tactic.name, _keys(tactic, kernel_keys)) for tactic in tactics if isinstance(tactic, Tactic)]
    text = json.dumps([workload.structure(), kernels], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _keys(tactic: Tactic, kernel_keys: Callable[[KernelSpec], str]) -> list[str]:
    kernels = [kernel_keys(spec) for draft in tactic.drafts for spec in draft.kernels]
    return kernels + [graph_key(graph) for draft in tactic.drafts for graph in draft.graphs]


def _verdict(known: Timing | str) -> Verdict:
    return Verdict(reason=known) if isinstance(known, str) else Verdict(known)


def _text(facts: TensorFacts) -> str:
    return f"{facts.dtype}{list(facts.shape)}"
