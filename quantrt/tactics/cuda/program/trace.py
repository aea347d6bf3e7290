# SPDX-License-Identifier: Apache-2.0
"""Shapes, strides, types and extremes of every buffer of a program, by running it once.

A weight is on the device only while its step runs: a program that runs once need not fit beside the engines
that a build has open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from quantrt.errors import DataError
from quantrt.ir.collector import without_collector
from quantrt.plan.program import Program, Step
from quantrt.runtime.cuda.runner import Allocate, Assets
from quantrt.runtime.cuda.steps.assets import upload
from quantrt.runtime.cuda.steps.steps import FreshMemory, open_program, open_runner, run_steps
from quantrt.runtime.cuda.tensors import tensor_on
from quantrt.tactics.cuda.program.alike import Alike
from quantrt.tactics.cuda.tactic import TensorFacts

__all__ = ["Traced", "trace", "trace_facts"]

log = logging.getLogger(__name__)

EXTREMES_OF = (torch.float32, torch.float64)
"""Types whose extremes tell what a narrower one would have to hold."""

META = torch.device("meta")
"""On which torch computes shapes, strides and types alone: weights stay where they are."""


@dataclass(frozen=True)
class Traced:
    """What one run showed.

    Attributes:
        facts: of every buffer that holds a tensor.
        extremes: the least and the largest number, [2] on the device, of every wide buffer that a step made.
    """

    facts: dict[str, TensorFacts] = field(default_factory=dict)
    extremes: dict[str, torch.Tensor] = field(default_factory=dict)

    def ranges(self) -> dict[str, tuple[float, float]]:
        """The extremes, as numbers."""
        pairs = {name: pair.tolist() for name, pair in self.extremes.items()}
        return {name: (least, most) for name, (least, most) in pairs.items()}


@without_collector()
def trace(program: Program, inputs: Mapping[str, np.ndarray], device: torch.device) -> Traced:
    """Run a program once.

    Raises:
        DataError: a step cannot take these inputs; names its region.
        DeviceError: out of memory.
    """
    values: dict[str, Any] = {name: tensor_on(inputs[name]).to(device) for name, _ in program.inputs}
    alike = Alike() if device == META else None

    def passing(step: Step, assets: Assets) -> _Passing:
        return _Passing(step, assets, program.weights, alike)

    opened = open_program(replace(program, weights={}), device, passing)
    memory = _Watched(device, lambda number: opened.steps[number].step.outputs)
    memory.traced.facts.update((name, _facts(tensor)) for name, tensor in values.items())
    with torch.no_grad():
        run_steps(opened, values, memory)
    return memory.traced


def trace_facts(
    program: Program, inputs: Mapping[str, np.ndarray], device: torch.device
) -> dict[str, TensorFacts]:
    """The facts of a program alone, without its values where no step looks at them.

    Raises:
        DataError, DeviceError: as of `trace`.
    """
    if not any(step.reads_values for step in program.steps):
        try:
            return trace(program, inputs, META).facts
        except DataError as error:  # an operator may look at values that it need not see every time
            log.debug("traced with values: %s", error)
    return trace(program, inputs, device).facts


class _Passing:
    """A runner whose weights come when it runs, and go with it.

    Args:
        alike: where there are no values: what steps like it have made.
    """

    def __init__(
        self, step: Step, assets: Assets, weights: Mapping[str, np.ndarray], alike: Alike | None
    ) -> None:
        self._step = step
        self._assets = assets
        self._weights = {key: weights[key] for key in step.weights}
        self._alike = alike

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner."""

        def compute() -> Sequence[Any]:
            weights = {key: upload(key, x, self._assets.device) for key, x in self._weights.items()}
            return open_runner(self._step, replace(self._assets, weights=weights)).run(inputs, allocate)

        if self._alike is None:
            return compute()
        return self._alike.outputs(self._step, inputs, list(self._weights.values()), compute)


class _Watched:
    """Fresh memory that keeps what it sees of what steps make."""

    def __init__(self, device: torch.device, outputs: Callable[[int], Sequence[str]]) -> None:
        self._fresh = FreshMemory(device)
        self._outputs = outputs
        self.traced = Traced()

    def allocate_for(self, number: int) -> Allocate:
        """See Memory."""
        return self._fresh.allocate_for(number)

    def note(self, number: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """See Memory."""
        for name, tensor in zip(self._outputs(number), outputs, strict=True):
            if not name or not isinstance(tensor, torch.Tensor):
                continue
            self.traced.facts[name] = _facts(tensor)
            if tensor.dtype in EXTREMES_OF and tensor.numel() and not tensor.is_meta:
                self.traced.extremes[name] = torch.stack(tensor.aminmax())


def _facts(tensor: torch.Tensor) -> TensorFacts:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorFacts(dtype, tuple(tensor.shape), tuple(tensor.stride()))
