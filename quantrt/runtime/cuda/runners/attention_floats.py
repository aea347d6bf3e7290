# SPDX-License-Identifier: Apache-2.0
"""epilogue(softmax(masked(scale * q @ k^T)) @ v) of floats with the kernel of compute capability 9.0.

Options, inputs and weights are those of runners/fused_attention.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

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

__all__ = ["open_runner"]

_ROWS = 64
"""Queries of a consumer."""


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _AttentionFloatsRunner(step, assets)


class _AttentionFloatsRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        options = step.options
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        fixed = dict(self._launch.spec.constants)
        self._queries = _ROWS * int(fixed["CONSUMERS"])
        # With a mask scores stay in units of the exponent of e.
        unit = LOG2E if fixed["MASK"] == "none" else 1.0
        value = [float(options["mask_value"])] if fixed["MASK"] in ("kept", "dropped") else []
        self._last = [float(options["scale"]) * unit, *value]
        self._scalars = tuple(float(number) for number in options["scalars"])
        self._outputs = tuple(torch_dtype(name) for name in options["outputs"])
        self._reader = AttentionReader.of(step, self._launch)
        constant = assets.weights[step.weights[0]] if step.weights else None
        self._mask = MaskReader.of(self._reader, constant, self._launch)
        self._programs = programs_on(assets.device)

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the axes of the outputs lie in memory in the order of q's."""
        given, sizes = self._reader.read(inputs)
        outputs = allocate_outputs(allocate, self._outputs, sizes, given[0])
        tiles = sizes.B * sizes.H * math.ceil(sizes.S / self._queries)
        if tiles == 0:
            return outputs
        if sizes.T == 0:
            return [output.zero_() for output in outputs]
        operands = [self._reader.readable(tensor, sizes.B) for tensor in given]
        masks, strides = self._mask.read(inputs, sizes)
        lengths = [sizes.B, sizes.H, sizes.S, sizes.T]
        steps = self._reader.steps(outputs[:1])
        arguments = [*operands, *masks, *outputs, *self._scalars, *lengths, *strides, *steps, *self._last]
        self._launch((min(tiles, self._programs), 1, 1), arguments)
        return outputs
