# SPDX-License-Identifier: Apache-2.0
"""epilogue(softmax(scale * q @ k^T + mask) @ v) with the kernel that reads keys and values once for a head.

Options, inputs and weights are those of runners/fused_attention.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from quantrt.kernels.attention_hopper.spec import ROWS
from quantrt.plan.program import Step
from quantrt.runtime.cuda.attention_operands import (
    LOG2E,
    AttentionReader,
    MaskReader,
    allocate_outputs,
)
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.runners.gemm_hopper import programs_on
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner", "rounds_of"]

Tensor = torch.Tensor


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _ResidentAttentionRunner(step, assets)


class _ResidentAttentionRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        options = step.options
        self._scale = float(options["scale"]) * LOG2E
        self._scalars = tuple(float(value) for value in options["scalars"])
        self._outputs = tuple(torch_dtype(name) for name in options["outputs"])
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        self._reader = AttentionReader.of(step, self._launch)
        fixed = dict(self._launch.spec.constants)
        self._has_mask = fixed["MASK"] != "none"
        self._queries = ROWS * int(fixed["CONSUMERS"])
        constant = assets.weights[step.weights[0]] if step.weights else None
        self._mask = MaskReader.of(self._reader, constant, self._launch)
        self._programs = programs_on(assets.device)

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the axes of the outputs lie in memory in the order of q's."""
        given, sizes = self._reader.read(inputs)
        outputs = allocate_outputs(allocate, self._outputs, sizes, given[0])
        heads = sizes.B * sizes.H
        if heads * sizes.S == 0:
            return outputs
        if sizes.T == 0:
            return [output.zero_() for output in outputs]
        q, k, v = (self._reader.readable(tensor, sizes.B) for tensor in given)
        masks = [self._boxed(self._mask.read(inputs, sizes))] if self._has_mask else []
        all_rounds = math.ceil(sizes.S / self._queries)
        rounds = rounds_of(heads, all_rounds, self._programs)
        lengths = [sizes.B, sizes.H, sizes.S, sizes.T, rounds]
        varies = [int(size > 1) for mask in masks for size in mask.shape[:2]]
        arguments = [q, k, v, *masks, *outputs, *self._scalars, *lengths, *self._reader.steps([q])]
        arguments += [*varies, *self._reader.steps(outputs[:1]), self._scale]
        units = heads * math.ceil(all_rounds / rounds)
        self._launch((min(units, self._programs), 1, 1), arguments)
        return outputs

    def _boxed(self, mask: Tensor) -> Tensor:
        """A mask with one element along axes that it is repeated along; rows are, if at all, in memory."""
        for axis in (0, 1):
            if mask.stride(axis) == 0:
                mask = mask.narrow(axis, 0, 1)
        return mask.contiguous() if mask.shape[2] > 1 and mask.stride(2) == 0 else mask


def rounds_of(heads: int, all_rounds: int, programs: int) -> int:
    """Rounds of a unit, as many as can be without the programs taking longer for it.

    Args:
        heads: of all samples.
        all_rounds: of a head.
    """

    def longest(rounds: int) -> int:
        return rounds * math.ceil(heads * math.ceil(all_rounds / rounds) / programs)

    return min(range(1, all_rounds + 1), key=lambda rounds: (longest(rounds), -rounds))
