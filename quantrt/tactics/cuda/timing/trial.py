# SPDX-License-Identifier: Apache-2.0
"""One workload on a device: every tactic held against the reference, those that pass it timed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from quantrt.errors import DeviceError, first_line
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.runtime.cuda.tensors import tensor_on
from quantrt.tactics.cuda.convolutions.cudnn_plans import PlanMaker
from quantrt.tactics.cuda.tactic import Tactic, Workload
from quantrt.tactics.cuda.timing.check import check, poison
from quantrt.tactics.cuda.timing.measure import Untimed, measure
from quantrt.tactics.cuda.timing.open_tactic import OpenTactic
from quantrt.tactics.cuda.timing.timing import Timing

__all__ = ["Device", "Trial", "Verdict", "first_right", "try_tactics"]

log = logging.getLogger(__name__)

Tensor = torch.Tensor


@dataclass(frozen=True)
class Device:
    """Where tactics are tried.

    Attributes:
        stream: of a GPU; one for all workloads, because libraries keep a workspace for each.
    """

    torch_device: torch.device
    stream: torch.cuda.Stream | None = None


@dataclass(frozen=True)
class Verdict:
    """What a trial found out about one tactic.

    Attributes:
        timing: None where there is none.
        reason: why there is none; empty for a tactic that is right and was not timed.
        is_lasting: whether the reason holds in every other trial here, rather than for want of memory.
    """

    timing: Timing | None = None
    reason: str = ""
    is_lasting: bool = True


@dataclass
class Trial:
    """One workload with its inputs and the outputs that the reference gives.

    Attributes:
        weights: constants on the device, by key, shared by its tactics.
        plans: makes those of cuDNN; None on a CPU.
    """

    workload: Workload
    device: Device
    kernels: Mapping[KernelSpec, CompiledKernel]
    inputs: Sequence[Tensor]
    expected: Sequence[Tensor]
    weights: dict[str, Tensor] = field(default_factory=dict)
    plans: PlanMaker | None = None

    @classmethod
    def begin(
        cls,
        workload: Workload,
        device: Device,
        kernels: Mapping[KernelSpec, CompiledKernel],
        inputs: Sequence[Tensor],
        plans: PlanMaker | None = None,
    ) -> Trial:
        """Compute what is right.

        Raises:
            DeviceError: memory is short even for the reference; names the region.
        """
        on = device.torch_device
        weight = None if workload.weight is None else _stored(workload.weight, inputs[0])
        constants = {name: tensor_on(array).to(on) for name, array in workload.constants.items()}
        try:
            expected = compute(workload.formula, inputs, workload.outputs, weight, constants)
        except torch.OutOfMemoryError as error:
            _free(device)
            raise DeviceError(
                f"not enough device memory to check the kernels of region '{workload.region}'",
                got=first_line(error),
                hint="a smaller batch",
            ) from error
        return cls(workload, device, kernels, inputs, expected, plans=plans)

    def open(self, tactic: Tactic) -> OpenTactic | Verdict:
        """The tactic, once it gave the right outputs; otherwise what is wrong with it."""
        region = self.workload.region
        graphs = [graph for draft in tactic.drafts for graph in draft.graphs]
        if self.plans is not None and graphs:
            self.plans.make(graphs)
            reason = self.plans.reason(graphs)
            if reason:
                return Verdict(reason=reason, is_lasting=self.plans.is_lasting(reason))
        with ExitStack() as stack:
            try:
                opened = stack.enter_context(
                    OpenTactic(
                        tactic,
                        region,
                        self.kernels,
                        self.device.torch_device,
                        weights=self.weights,
                        plans=None if self.plans is None else self.plans.plans,
                        pitches=self.workload.pitches,
                        live_rows=self.workload.live_rows,
                        fill=poison,
                    )
                )
                wrong = check(self.workload, tactic, opened.run(self.inputs), self.expected)
            except Exception as error:  # noqa: BLE001  a candidate that fails in whatever way is none
                if _is_short_of_memory(error):
                    return Verdict(reason=f"out of device memory: {first_line(error)}", is_lasting=False)
                _check_device(self.device, tactic, region)
                log.warning("tactic '%s' of region '%s' failed: %s", tactic.name, region, error)
                return Verdict(reason=f"failed: {type(error).__name__}: {first_line(error)}")
            if wrong is None:
                stack.pop_all()
                return opened
        return Verdict(reason=wrong.reason)


def try_tactics(trial: Trial, tactics: Sequence[Tactic]) -> dict[str, Verdict]:
    """Check every tactic and time those that are right, by name."""
    verdicts: dict[str, Verdict] = {}
    with ExitStack() as stack:
        survivors: dict[str, OpenTactic] = {}
        for tactic in tactics:
            found = trial.open(tactic)
            if isinstance(found, OpenTactic):
                survivors[tactic.name] = stack.enter_context(found)
                continue
            verdicts[tactic.name] = found
            if not found.is_lasting:
                _free(trial.device)
        runs = {name: partial(opened.run, trial.inputs) for name, opened in survivors.items()}
        timings = measure(runs, device=trial.device.torch_device, stream=trial.device.stream)
    for name, timing in timings.items():
        if isinstance(timing, Untimed):
            verdicts[name] = Verdict(reason=timing.reason, is_lasting=False)
        else:
            verdicts[name] = Verdict(timing)
    return verdicts


def first_right(trial: Trial, tactics: Sequence[Tactic]) -> dict[str, Verdict]:
    """Check tactics in order up to the first that is right, which has neither timing nor reason."""
    verdicts: dict[str, Verdict] = {}
    for tactic in tactics:
        found = trial.open(tactic)
        if isinstance(found, Verdict):
            verdicts[tactic.name] = found
            continue
        found.close()
        verdicts[tactic.name] = Verdict()
        break
    return verdicts


def _stored(weight: np.ndarray, x: Tensor) -> Tensor:
    """The weight as every tactic stores it: floats in the type of the other factor.

    Rounding it is no tactic's error; behind a Clip of a large sum it would look like one.
    """
    tensor = tensor_on(weight).to(x.device)
    return tensor.to(x.dtype) if tensor.is_floating_point() else tensor


def _is_short_of_memory(error: BaseException) -> bool:
    """Whether it is torch's, or a runner's for want of it."""
    return isinstance(error, torch.OutOfMemoryError) or isinstance(error.__cause__, torch.OutOfMemoryError)


def _free(device: Device) -> None:
    """Give cached memory back to the device."""
    if device.torch_device.type == "cuda":
        torch.cuda.empty_cache()


def _check_device(device: Device, tactic: Tactic, region: str) -> None:
    """Find out whether the device still works: after an illegal access it does not, for this whole process.

    Raises:
        DeviceError: it does not.
    """
    if device.torch_device.type != "cuda":
        return
    try:
        torch.cuda.synchronize(device.torch_device)
    except RuntimeError as error:
        raise DeviceError(
            f"the GPU failed in tactic '{tactic.name}' of region '{region}'",
            got=first_line(error),
            hint=f"--exclude-tactic-sources {tactic.source}",
        ) from error
