# SPDX-License-Identifier: Apache-2.0
"""A tactic's drafts run on tensors in host memory, its kernels in Triton's interpreter."""

import importlib
from collections.abc import Callable, Sequence

import torch

from quantrt.kernels.kernel import KernelSpec
from quantrt.kernels.kernel_text import kernel_key
from quantrt.plan.program import Step
from quantrt.runtime.cuda.device.launcher import InterpreterLauncher
from quantrt.runtime.cuda.runner import Assets
from quantrt.runtime.cuda.tensors import empty_tensor, tensor_on
from quantrt.tactics.cuda.tactic import Draft, Tactic, TensorFacts

CPU = torch.device("cpu")


class CountingLauncher(InterpreterLauncher):
    """Notes which kernels were launched."""

    def __init__(self, spec: KernelSpec, launched: list[KernelSpec]) -> None:
        super().__init__(spec)
        self.launched = launched

    def __call__(self, grid, arguments) -> None:
        self.launched.append(self.spec)
        super().__call__(grid, arguments)


def facts_of(tensor: torch.Tensor) -> TensorFacts:
    return TensorFacts(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.stride())


def run_tactic(
    tactic: Tactic,
    inputs: Sequence[torch.Tensor],
    keep: Callable[[int, KernelSpec], bool] = lambda number, spec: True,
) -> tuple[list[torch.Tensor], list[KernelSpec]]:
    """The region's outputs, and the kernels that were launched.

    Args:
        keep: which kernels of each draft there are, by their place in it.
    """
    buffers = {f"in{number}": tensor for number, tensor in enumerate(inputs)}
    launched: list[KernelSpec] = []
    for draft in tactic.drafts:
        runner, step = _open(draft, keep, launched)
        given = [buffers.get(name) for name in step.inputs]
        results = runner.run(given, _allocate)
        buffers.update(zip(step.outputs, results, strict=True))
    return [buffers[name] for name in sorted(buffers) if name.startswith("out")], launched


def _open(draft: Draft, keep: Callable[[int, KernelSpec], bool], launched: list[KernelSpec]):
    weights = {constant.key: tensor_on(constant.make()) for constant in draft.constants}
    kept = [spec for number, spec in enumerate(draft.kernels) if keep(number, spec)]
    kernels = {kernel_key(spec): CountingLauncher(spec, launched) for spec in kept}
    step = Step(
        draft.runner, "region", draft.inputs, draft.outputs, draft.options, tuple(weights), tuple(kernels)
    )
    module = importlib.import_module(f"quantrt.runtime.cuda.runners.{draft.runner}")
    return module.open_runner(step, Assets(CPU, weights, kernels)), step


def _allocate(output: int, shape, dtype: torch.dtype, *, channels_last: bool = False) -> torch.Tensor:
    """New memory with something in it, so that what is not written is found."""
    return empty_tensor(shape, dtype, CPU, channels_last=channels_last).fill_(1)
