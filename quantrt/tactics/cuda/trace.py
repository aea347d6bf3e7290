# SPDX-License-Identifier: Apache-2.0
"""Shapes, strides and types of every buffer of a program, by running it once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from quantrt.plan.program import Program
from quantrt.runtime.cuda.runner import Allocate
from quantrt.runtime.cuda.steps import FreshMemory, open_program, run_steps
from quantrt.runtime.cuda.tensors import tensor_on
from quantrt.tactics.cuda.tactic import TensorFacts

__all__ = ["trace"]


def trace(program: Program, inputs: Mapping[str, np.ndarray], device: torch.device) -> dict[str, TensorFacts]:
    """Facts of every buffer that holds a tensor.

    Raises:
        DataError: a step cannot take these inputs; names its region.
        DeviceError: out of memory.
    """
    values: dict[str, Any] = {name: tensor_on(inputs[name]).to(device) for name, _ in program.inputs}
    opened = open_program(program, device)
    memory = _Watched(device, lambda number: opened.steps[number].step.outputs)
    memory.facts.update((name, _facts(tensor)) for name, tensor in values.items())
    with torch.no_grad():
        run_steps(opened, values, memory)
    return memory.facts


class _Watched:
    """Fresh memory that keeps the facts of what steps make."""

    def __init__(self, device: torch.device, outputs: Callable[[int], Sequence[str]]) -> None:
        self._fresh = FreshMemory(device)
        self._outputs = outputs
        self.facts: dict[str, TensorFacts] = {}

    def allocate_for(self, number: int) -> Allocate:
        """See Memory."""
        return self._fresh.allocate_for(number)

    def note(self, number: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """See Memory."""
        for name, tensor in zip(self._outputs(number), outputs, strict=True):
            if name and isinstance(tensor, torch.Tensor):
                self.facts[name] = _facts(tensor)


def _facts(tensor: torch.Tensor) -> TensorFacts:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorFacts(dtype, tuple(tensor.shape), tuple(tensor.stride()))
