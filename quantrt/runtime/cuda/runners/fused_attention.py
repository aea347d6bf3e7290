# SPDX-License-Identifier: Apache-2.0
"""epilogue(softmax(masked(scale * q @ k^T)) @ v) with our kernel.

options: {"scale"; "is_transposed": k is [B, G, D, T]; "mask_value": what is not kept, or dropped, becomes;
"dtype": of q, k, v; "scalars": operands of the epilogue; "outputs": element types}. Inputs: q, k, v, a mask
or none; offsets of packed samples. Weights: the mask where it is a constant. Tensors whose rows the kernel
cannot read are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.operands.attention import (
    LOG2E,
    AttentionReader,
    MaskReader,
    allocate_outputs,
    mask_strides,
    value_of_masked,
)
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

_DENSE = torch.contiguous_format


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _FusedAttentionRunner(step, assets)


class _FusedAttentionRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        options = step.options
        self._scale = float(options["scale"])
        self._mask_value = value_of_masked(float(options["mask_value"]))
        self._scalars = tuple(float(value) for value in options["scalars"])
        self._outputs = tuple(torch_dtype(name) for name in options["outputs"])
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        self._fixed = dict(self._launch.spec.constants)
        self._reader = AttentionReader.of(step, self._launch)
        constant = assets.weights[step.weights[0]] if step.weights else None
        self._mask = MaskReader.of(self._reader, constant, self._launch)

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the axes of the outputs lie in memory in the order of q's."""
        given, sizes = self._reader.read(inputs)
        offsets = [inputs[3]] if self._fixed["IS_PACKED"] else []
        given = [_in_a_row(tensor) for tensor in given] if offsets else given
        outputs = allocate_outputs(allocate, self._outputs, sizes, given[0])
        if sizes.B * sizes.H * sizes.S == 0:
            return outputs
        tensors = [self._reader.readable(tensor, sizes.B) for tensor in given]
        masks = [self._mask.read(inputs, sizes)] if self._fixed["MASK"] != "none" else []
        strides = [step // self._mask.unit for mask in masks for step in mask_strides(mask)]
        steps = self._reader.steps(tensors)
        value = [self._mask_value] if self._fixed["MASK"] in ("kept", "dropped") else []
        last = [self._scale * LOG2E, *value]
        arguments = [*tensors, *masks, *offsets, *outputs, *self._scalars]
        arguments += [sizes.H, sizes.S, sizes.T, *steps, *strides, *outputs[0].stride()[:3], *last]
        programs = -(-sizes.S // int(self._fixed["BLOCK_M"])) * sizes.B * sizes.H
        self._launch((programs, 1, 1), arguments)
        return outputs


def _in_a_row(tensor: torch.Tensor) -> torch.Tensor:
    """[B, H, S, D] whose samples lie behind each other, [B * S, H, D]; copied where they do not."""
    is_so = tensor.shape[0] == 1 or tensor.stride(0) == tensor.shape[2] * tensor.stride(2)
    return tensor if is_so else tensor.transpose(1, 2).clone(memory_format=_DENSE).transpose(1, 2)
