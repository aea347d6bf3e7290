# SPDX-License-Identifier: Apache-2.0
"""Choose a tactic for every workload: compile the candidates, check them, time those that are right.

Equal work is done once: workloads with equal keys share timings and kernels, and what the timing cache knows
is not tried again. The same cache gives the same choices. On a CPU, Triton's interpreter runs the kernels
and nothing is compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from quantrt.cuda_config import CudaConfig
from quantrt.errors import InternalError
from quantrt.gpu import GpuFacts
from quantrt.kernels.compile_all import OUT_OF_TIME, CompileFailure, compile_all
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.plan.cudnn_plan import CudnnGraph, CudnnPlan, graph_key
from quantrt.tactics.cuda.convolutions.cudnn_plans import PlanMaker, plan_maker
from quantrt.tactics.cuda.tactic import REFERENCE, Rejected, Tactic, Workload
from quantrt.tactics.cuda.timing.environment import timing_environment
from quantrt.tactics.cuda.timing.sample_inputs import random_inputs
from quantrt.tactics.cuda.timing.timing_cache import TimingCache, merge
from quantrt.tactics.cuda.timing.trial import Device, Trial, Verdict, first_right, try_tactics
from quantrt.tactics.cuda.tuning.choices import Choice, Choices
from quantrt.tactics.cuda.tuning.group import Group, make_groups
from quantrt.tactics.cuda.tuning.prune import Pruned, prune
from quantrt.tactics.cuda.tuning.targets import compile_for_targets
from quantrt.worker_process import WorkerPool

__all__ = ["TuneOptions", "tune"]

Samples = Callable[[Workload, torch.device], Sequence[torch.Tensor]]
Progress = Callable[[str, int, int], None]

COMPILE_RATIO = 0.6
"""Of the time budget, after which only the first candidate of each workload is still compiled."""


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """How much is tried.

    Attributes:
        level: builder optimization level, 0 to 5.
        budget_s: wall-clock seconds after which workloads get their first right tactic, untimed; None is no
            bound.
        workspace_limit_bytes: tactics that need more are rejected; None is no bound.
        excluded_sources: of tactics; the reference is never excluded.
        targets: compute capabilities that the chosen kernels are compiled for beside the GPU's own.
    """

    level: int = 3
    budget_s: float | None = None
    workspace_limit_bytes: int | None = None
    excluded_sources: tuple[str, ...] = ()
    targets: tuple[int, ...] = ()

    @classmethod
    def of(cls, config: CudaConfig, level: int, targets: tuple[int, ...]) -> TuneOptions:
        """Those of a build, at a level that may be lower than its own."""
        return cls(
            level=level,
            budget_s=config.tuning_time_s,
            workspace_limit_bytes=config.workspace_bytes,
            excluded_sources=config.exclude_tactic_sources,
            targets=targets,
        )


def tune(
    workloads: Sequence[Workload],
    tactics: Mapping[str, Sequence[Tactic | Rejected]],
    *,
    gpu: GpuFacts,
    device: torch.device | None,
    cache: TimingCache | None = None,
    options: TuneOptions | None = None,
    samples: Samples = random_inputs,
    plans: PlanMaker | None = None,
    kernels: dict[KernelSpec, CompiledKernel] | None = None,
    pool: WorkerPool | None = None,
    on_progress: Progress = lambda stage, done, total: None,
) -> Choices:
    """Choose a tactic for every workload.

    Args:
        tactics: candidates of every workload by its region, of each source the likely fastest first, the
            reference among them.
        gpu: what the kernels are compiled for.
        device: that GPU; None when it is not here, so that choices rest on the cache and on estimates.
        samples: inputs for a workload on a device.
        plans: makes those of cuDNN, and keeps them for other calls; by default one of this call's own.
        kernels: machine code for the GPU that is known, to which what is compiled is added.
        pool: of `compilers`, which serves other calls too; by default one of this call's own.
        on_progress: called with ("compile" or "time", done, in all).

    Raises:
        DeviceError: the GPU fails, or has not even the memory for the reference of one region.
        InternalError: a workload has no reference tactic.
    """
    options = options or TuneOptions()
    groups = make_groups(workloads, tactics, partial(_sort_out, options))
    cache = cache or TimingCache(timing_environment(gpu))
    for group in groups:
        group.know(cache)
    plans = plans or plan_maker(device, workspace_limit_bytes=options.workspace_limit_bytes)
    tuner = _Tuner(gpu, device, options, plans, pool, on_progress, {} if kernels is None else kernels)
    if device is not None:
        tuner.compile_candidates(groups)
        tuner.try_groups(groups, device, samples)
    chosen = tuner.choose(groups)
    found = TimingCache(cache.environment, {group.key: group.entry() for group in groups})
    return Choices(
        by_region=_by_region(groups, chosen, tactics),
        kernels={spec: tuner.kernels[spec] for choice in chosen.values() for spec in _specs(choice.tactic)},
        plans=tuner.plans_of([choice.tactic for choice in chosen.values()]),
        candidates={group.key: group.table() for group in groups},
        cache=merge(cache, found),
        compile_s=tuner.compile_s,
        timing_s=tuner.timing_s,
        notes=(*cache.notes, *tuner.notes(groups), *_fallbacks(groups, chosen)),
    )


def _sort_out(options: TuneOptions, workload: Workload, tactics: Sequence[Tactic | Rejected]) -> Pruned:
    """The tactics of a workload that are worth trying."""
    weight = workload.weight
    return prune(
        tactics,
        options.level,
        is_float=weight is not None and np.issubdtype(weight.dtype, np.floating),
        workspace_limit_bytes=options.workspace_limit_bytes,
        excluded_sources=options.excluded_sources,
    )


@dataclass
class _Tuner:
    """One call of `tune`: what was compiled so far, and what it took.

    Attributes:
        refused: kernels among the failures that run on the GPU, and not on every target.
    """

    gpu: GpuFacts
    device: torch.device | None
    options: TuneOptions
    plans: PlanMaker | None
    pool: WorkerPool | None
    on_progress: Progress
    kernels: dict[KernelSpec, CompiledKernel] = field(default_factory=dict)
    failures: dict[KernelSpec, str] = field(default_factory=dict)
    refused: set[KernelSpec] = field(default_factory=set)
    compile_s: float = 0.0
    timing_s: float = 0.0
    untimed: int = 0
    begin_s: float = field(default_factory=time.monotonic)

    def compile_candidates(self, groups: Sequence[Group]) -> None:
        """Compile the kernels of all pending tactics: the first of each group, then the rest in turns."""
        ranked = [[_specs(tactic) for tactic in group.pending] for group in groups]
        first = [spec for rank in ranked for spec in (rank[0] if rank else ())]
        depth = max((len(rank) for rank in ranked), default=0)
        rest = [spec for n in range(1, depth) for rank in ranked if n < len(rank) for spec in rank[n]]
        budget_s = self.options.budget_s
        if budget_s is None:
            self.compile([*first, *rest], None)
        else:
            self.compile(first, None)
            self.compile(rest, max(0.0, COMPILE_RATIO * budget_s - self.spent_s))
        if self.options.level > 0:
            left_s = None if budget_s is None else max(0.0, COMPILE_RATIO * budget_s - self.spent_s)
            self.make_plans([tactic for group in groups for tactic in group.pending], left_s)
        for group in groups:
            for tactic in group.pending:
                self.reject_uncompiled(group, tactic)

    def compile(self, specs: Sequence[KernelSpec], deadline_s: float | None) -> None:
        """Compile what is not compiled yet; on a CPU nothing is."""
        missing = [spec for spec in dict.fromkeys(specs) if spec not in self.kernels | self.failures]
        if self.device is not None and self.device.type != "cuda":
            self.kernels.update({spec: CompiledKernel(spec, spec.function, {}, {}) for spec in missing})
            return
        if not missing:
            return
        begin_s = time.monotonic()
        results = compile_all(
            missing,
            [self.gpu.capability],
            pool=self.pool,
            deadline_s=deadline_s,
            on_progress=partial(self.on_progress, "compile"),
        )
        for spec, result in results.items():
            if isinstance(result, CompileFailure):
                self.failures[spec] = result.reason
            else:
                self.take(spec, result)
        self.compile_s += time.monotonic() - begin_s

    def make_plans(self, tactics: Sequence[Tactic], deadline_s: float | None) -> None:
        """Have cuDNN make what the tactics lack; on a CPU, and for a GPU that is not here, it does not."""
        graphs = [graph for tactic in tactics for graph in _graphs(tactic)]
        if self.plans is None or not graphs:
            return
        begin_s = time.monotonic()
        progress = partial(self.on_progress, "compile")
        self.plans.make(graphs, deadline_s=deadline_s, on_progress=progress)
        self.compile_s += time.monotonic() - begin_s

    def plans_of(self, tactics: Sequence[Tactic]) -> dict[str, CudnnPlan]:
        """By key; none on a CPU."""
        keys = [graph_key(graph) for tactic in tactics for graph in _graphs(tactic)]
        return {} if self.plans is None else {key: self.plans.plans[key] for key in keys}

    def compile_for_targets(self, specs: Sequence[KernelSpec]) -> None:
        """Machine code of compiled kernels for the targets too; on a CPU there is none."""
        kernels = {spec: self.kernels[spec] for spec in specs if spec in self.kernels}
        is_compiled = self.device is None or self.device.type == "cuda"
        if not (self.options.targets and is_compiled):
            return
        begin_s = time.monotonic()
        found = compile_for_targets(
            kernels,
            self.options.targets,
            pool=self.pool,
            on_progress=partial(self.on_progress, "compile"),
        )
        for spec, result in found.items():
            if isinstance(result, CompileFailure):
                self.failures[spec] = result.reason
                self.refused.add(spec)
            else:
                self.kernels[spec] = result
        self.compile_s += time.monotonic() - begin_s

    def take(self, spec: KernelSpec, kernel: CompiledKernel) -> None:
        """Keep a kernel that the GPU can run."""
        needed, limit = kernel.shared_bytes[self.gpu.capability], self.gpu.shared_memory_bytes
        if needed > limit:
            self.failures[spec] = f"needs {needed} bytes of shared memory, {self.gpu.name} has {limit}"
        else:
            self.kernels[spec] = kernel

    def reject_uncompiled(self, group: Group, tactic: Tactic) -> bool:
        """Give a verdict on a tactic with a kernel or plan that cannot be made; whether there is one."""
        failed = [spec for spec in _specs(tactic) if spec in self.failures]
        if failed:
            reason = self.failures[failed[0]]
            is_lasting = OUT_OF_TIME not in reason and failed[0] not in self.refused
            group.verdicts[tactic.name] = Verdict(
                reason=f"cannot be compiled: {reason}", is_lasting=is_lasting
            )
            return True
        reason = "" if self.plans is None else self.plans.reason(_graphs(tactic))
        if self.plans is not None and reason:
            is_lasting = self.plans.is_lasting(reason)
            group.verdicts[tactic.name] = Verdict(reason=reason, is_lasting=is_lasting)
        return bool(reason)

    def try_groups(self, groups: Sequence[Group], device: torch.device, samples: Samples) -> None:
        """Check, and while there is time, time the pending tactics of every group."""
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        for number, group in enumerate(groups):
            self.try_group(group, Device(device, stream), samples)
            self.on_progress("time", number + 1, len(groups))

    def try_group(self, group: Group, device: Device, samples: Samples) -> None:
        """Verdicts on the pending tactics; on the reference where none of the group's is right."""
        has_timing = any(verdict.timing for verdict in group.verdicts.values())
        is_late = self.options.budget_s is not None and self.spent_s > self.options.budget_s
        is_short = self.options.level == 0 or is_late
        if group.pending and not (is_short and has_timing):
            begin_s = time.monotonic()
            inputs = samples(group.workload, device.torch_device)
            trial = Trial.begin(group.workload, device, self.kernels, inputs, self.plans)
            group.verdicts.update((first_right if is_short else try_tactics)(trial, group.pending))
            self.untimed += is_late
            if not is_short and not _has_right(group):
                group.verdicts.update(try_tactics(trial, [group.reference]))
            self.timing_s += time.monotonic() - begin_s

    def choose(self, groups: Sequence[Group]) -> dict[str, Choice]:
        """A choice for every group, by key, all of whose kernels are compiled."""
        absent = self.gpu if self.device is None else None
        while True:
            chosen = {group.key: group.choose(absent) for group in groups}
            specs = [spec for choice in chosen.values() for spec in _specs(choice.tactic)]
            self.compile(specs, None)
            self.make_plans([choice.tactic for choice in chosen.values()], None)
            self.compile_for_targets(specs)
            failed = [self.reject_uncompiled(group, chosen[group.key].tactic) for group in groups]
            if not any(failed):
                return chosen

    def notes(self, groups: Sequence[Group]) -> tuple[str, ...]:
        """What the report should say."""
        notes = []
        if self.untimed:
            notes.append(f"{self.untimed} of {len(groups)} workloads were not timed: the time was over")
        if self.device is None:
            notes.append(f"not timed on the device: {self.gpu.name} is not here")
        if self.refused:
            notes.append(f"{len(self.refused)} kernels were not taken: they do not run on every target")
        late = sum(OUT_OF_TIME in reason for reason in self.failures.values())
        if late:
            notes.append(f"{late} kernels were not compiled: the time was over")
        return tuple(notes)

    @property
    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begin_s


def _fallbacks(groups: Sequence[Group], chosen: Mapping[str, Choice]) -> Iterator[str]:
    """Regions that run on the reference though something faster was tried, with the first reason."""
    for group in groups:
        refused = [verdict.reason for name, verdict in group.verdicts.items() if name != REFERENCE]
        if chosen[group.key].tactic.name == REFERENCE and any(refused):
            others = f" and {len(group.members) - 1} like it" if len(group.members) > 1 else ""
            reason = next(filter(None, refused))
            yield f"region '{group.workload.region}'{others} runs on the reference, slowly: {reason}"


def _specs(tactic: Tactic) -> list[KernelSpec]:
    return [spec for draft in tactic.drafts for spec in draft.kernels]


def _graphs(tactic: Tactic) -> list[CudnnGraph]:
    return [graph for draft in tactic.drafts for graph in draft.graphs]


def _has_right(group: Group) -> bool:
    return any(verdict.timing or not verdict.reason for verdict in group.verdicts.values())


def _by_region(
    groups: Sequence[Group],
    chosen: Mapping[str, Choice],
    tactics: Mapping[str, Sequence[Tactic | Rejected]],
) -> dict[str, Choice]:
    """Each member's own tactic, with its own weights, of the name that its group chose."""
    found: dict[str, Choice] = {}
    for group in groups:
        choice = chosen[group.key]
        for member in group.members:
            named = [
                tactic
                for tactic in tactics[member.region]
                if isinstance(tactic, Tactic) and tactic.name == choice.tactic.name
            ]
            if len(named) != 1:
                raise InternalError(
                    f"tactics of region '{member.region}' are not told apart by their names",
                    got=f"{len(named)} named '{choice.tactic.name}'",
                )
            found[member.region] = Choice(named[0], choice.median_us, choice.origin, group.key)
    return found
