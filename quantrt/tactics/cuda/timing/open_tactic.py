# SPDX-License-Identifier: Apache-2.0
"""A tactic on a device, ready to run outside a program: its runners, weights, kernels and buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import torch

from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.kernel_text import kernel_key
from quantrt.plan.cudnn_plan import CudnnPlan, graph_key
from quantrt.plan.program import Place, Step
from quantrt.runtime.cuda.device.cudnn_library import open_plans
from quantrt.runtime.cuda.device.launcher import open_launchers
from quantrt.runtime.cuda.runner import Allocate, Assets
from quantrt.runtime.cuda.steps.places import run_in_places
from quantrt.runtime.cuda.steps.steps import open_runner
from quantrt.runtime.cuda.tensors import empty_tensor, tensor_on
from quantrt.tactics.cuda.tactic import LIVE, Draft, Tactic

__all__ = ["OpenTactic"]

Tensor = torch.Tensor


class OpenTactic:
    """Runs a tactic again and again on buffers of its own; a context manager that frees its kernels.

    Args:
        region: for messages.
        kernels: machine code of all its kernels; on a CPU, Triton's interpreter takes their place.
        weights: constants that are on the device already, by key; those it lacks are added.
        plans: of its graphs, by key; none on a CPU.
        pitches: of the outputs, as in Workload: slices of larger images.
        live_rows: as in Workload.
        fill: what to do to every new buffer.

    Raises:
        DeviceError: a kernel or a plan cannot be loaded.
    """

    def __init__(
        self,
        tactic: Tactic,
        region: str,
        kernels: Mapping[KernelSpec, CompiledKernel],
        device: torch.device,
        *,
        weights: dict[str, Tensor],
        plans: Mapping[str, CudnnPlan] | None = None,
        pitches: Sequence[int] = (),
        live_rows: int | None = None,
        fill: Callable[[Tensor], object] = lambda tensor: None,
    ) -> None:
        live = [] if live_rows is None else [live_rows]
        self._live = torch.tensor(live, dtype=torch.int32, device=device)
        self._device = device
        self._fill = fill
        self._kept: dict[tuple[int, int], Tensor] = {}
        self._stack = ExitStack()
        needed = {spec for draft in tactic.drafts for spec in draft.kernels}
        launchers = open_launchers(
            {kernel_key(spec): _code(spec, kernels, device) for spec in needed}, device
        )
        for launcher in launchers.values():
            self._stack.callback(launcher.close)
        keys = [graph_key(graph) for draft in tactic.drafts for graph in draft.graphs]
        opened = open_plans({key: (plans or {})[key] for key in keys if device.type == "cuda"}, device)
        for plan in opened.values():
            self._stack.callback(plan.close)
        assets = Assets(device, weights, launchers, plans=opened)
        self._steps = [_step_of(draft, region, assets, weights, pitches) for draft in tactic.drafts]
        self._runners = [open_runner(step, assets) for step in self._steps]

    def __enter__(self) -> OpenTactic:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Free its kernels; none may be running, and no CUDA graph that holds one may run again."""
        self._kept.clear()
        self._stack.close()

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Enqueue one run; the outputs are overwritten by the next."""
        buffers = {LIVE: self._live, **{f"in{number}": tensor for number, tensor in enumerate(inputs)}}
        for number, (step, runner) in enumerate(zip(self._steps, self._runners, strict=True)):
            given = [buffers[name] if name else None for name in step.inputs]
            results = run_in_places(runner, step, given, buffers, self._allocator(number))
            buffers.update(zip(step.outputs, results, strict=True))
        names = [name for name in buffers if name.startswith("out") and name[3:].isdigit()]
        return [buffers[f"out{number}"] for number in range(len(names))]

    def _allocator(self, draft: int) -> Allocate:
        """Memory that a draft's outputs keep while their shapes stay the same."""

        def allocate(
            output: int, shape: Sequence[int], dtype: torch.dtype, *, channels_last: bool = False
        ) -> Tensor:
            kept = self._kept.get((draft, output))
            if kept is None or kept.shape != torch.Size(shape) or kept.dtype != dtype:
                kept = empty_tensor(shape, dtype, self._device, channels_last=channels_last)
                self._fill(kept)
                self._kept[draft, output] = kept
            return kept

        return allocate


def _code(
    spec: KernelSpec, kernels: Mapping[KernelSpec, CompiledKernel], device: torch.device
) -> CompiledKernel:
    if device.type != "cuda":
        return CompiledKernel(spec, spec.function, {}, {})
    return kernels[spec]


def _step_of(
    draft: Draft, region: str, assets: Assets, weights: dict[str, Tensor], pitches: Sequence[int]
) -> Step:
    for constant in draft.constants:
        if constant.key not in weights:
            weights[constant.key] = tensor_on(constant.make().copy()).to(assets.device)
    places = [Place(f"out{number}", 0, pitch) for number, pitch in enumerate(pitches) if pitch]
    return Step(
        runner=draft.runner,
        region=region,
        inputs=draft.inputs,
        outputs=draft.outputs,
        options=draft.options,
        weights=tuple(constant.key for constant in draft.constants),
        kernels=tuple(kernel_key(spec) for spec in draft.kernels),
        plans=tuple(key for key in map(graph_key, draft.graphs) if key in assets.plans),
        places=tuple(place for place in places if place.buffer in draft.outputs),
    )
