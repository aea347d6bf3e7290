# SPDX-License-Identifier: Apache-2.0
"""Values that float16 may be too narrow for: they are stored as float32 in an engine of halves.

The numerator of softmax-free attention is one, a sum over all tokens that is divided only afterwards. What
overflows becomes infinite, and NaN soon after; kernels add in float32 anyway: storing is what loses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from quantrt.plan.program import Program
from quantrt.runtime.cuda.runner import Allocate
from quantrt.runtime.cuda.steps import FreshMemory, open_program, run_steps
from quantrt.runtime.cuda.tensors import tensor_on

__all__ = ["HEADROOM_RATIO", "wide_values"]

FLOAT16_MAX = 65504.0

HEADROOM_RATIO = 8.0
"""Other inputs may reach so many times what samples reach."""


def wide_values(program: Program, inputs: Mapping[str, np.ndarray], device: torch.device) -> frozenset[str]:
    """Buffers that come within a factor of HEADROOM_RATIO of float16's largest number.

    What never exceeds zero is no such value: it is a mask, of which only the distance from 0 counts.

    Args:
        program: in float32.
        inputs: a batch of samples.

    Raises:
        DataError: a step cannot take these inputs; names its region.
        DeviceError: out of memory.
    """
    values: dict[str, Any] = {name: tensor_on(inputs[name]).to(device) for name, _ in program.inputs}
    opened = open_program(program, device)
    extremes = _Extremes(device, [step.outputs for step in program.steps])
    with torch.no_grad():
        run_steps(opened, values, extremes)
    limit = FLOAT16_MAX / HEADROOM_RATIO
    found = {name: pair.tolist() for name, pair in extremes.by_buffer.items()}
    return frozenset(name for name, (least, most) in found.items() if most > 0 and max(-least, most) > limit)


class _Extremes:
    """Fresh memory that keeps the least and the largest number of every float buffer."""

    def __init__(self, device: torch.device, outputs: Sequence[Sequence[str]]) -> None:
        self._fresh = FreshMemory(device)
        self._outputs = outputs
        self.by_buffer: dict[str, torch.Tensor] = {}

    def allocate_for(self, number: int) -> Allocate:
        """See Memory."""
        return self._fresh.allocate_for(number)

    def note(self, number: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """See Memory."""
        for name, tensor in zip(self._outputs[number], outputs, strict=True):
            if name and isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.numel():
                self.by_buffer[name] = torch.stack(tensor.aminmax())
