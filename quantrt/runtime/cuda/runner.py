# SPDX-License-Identifier: Apache-2.0
"""The protocol between the executor and what its steps call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from quantrt.kernels.kernel import KernelSpec
from quantrt.runtime.cuda.device.cudnn_library import OpenCudnnPlan

__all__ = ["Allocate", "Assets", "Launcher", "Runner"]

Allocate = Callable[..., torch.Tensor]
"""allocate(output: int, shape: Sequence[int], dtype: torch.dtype, *, channels_last: bool = False) -> Tensor:
memory for one output of the step, 256-byte aligned, contents undefined."""


class Launcher(Protocol):
    """One kernel, loaded."""

    spec: KernelSpec

    def __call__(self, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
        """Launch on torch's current stream. Arguments follow spec.signature: tensors (pointers), numbers."""


@dataclass(frozen=True)
class Assets:
    """What the steps of a program share.

    Attributes:
        device: where weights are and steps run.
        weights: tensors by key, on the device.
        kernels: launchers by key.
        plans: of cuDNN, by key; none on a CPU.
        nodes: the model of `Program.nodes` (an onnx_ir.Model), or None.
    """

    device: torch.device
    weights: Mapping[str, torch.Tensor]
    kernels: Mapping[str, Launcher]
    nodes: Any = None
    plans: Mapping[str, OpenCudnnPlan] = field(default_factory=dict)


class Runner(Protocol):
    """One step, opened. Runs share no state; a run only enqueues work and never waits for the device."""

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """The outputs, in the step's order: tensors, or views of inputs.

        Args:
            inputs: tensors in the order of Step.inputs, None for an absent one; host values are CPU tensors.
            allocate: where outputs go. A runner that cannot write into given memory returns its own tensors.

        Raises:
            DataError: shapes that the step cannot take; names its region.
            DeviceError: out of memory; names its region.
        """
