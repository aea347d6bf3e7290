# SPDX-License-Identifier: Apache-2.0
"""epilogue(softmax(masked(scale * q @ k^T)) @ v) with our kernel.

options: {"scale"; "is_transposed": k is [B, G, D, T]; "mask_value": what is not kept, or dropped, becomes;
"dtype": of q, k, v; "scalars": operands of the epilogue; "outputs": element types}. Inputs: q, k, v, a mask
or none. Weights: the mask where it is a constant. Tensors whose rows the kernel cannot read are copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError
from quantrt.kernels.attention.spec import MAX_OFFSET
from quantrt.plan.program import Step
from quantrt.runtime.cuda.attention_operands import (
    LOG2E,
    AttentionReader,
    AttentionSizes,
    allocate_outputs,
)
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

Tensor = torch.Tensor

_LOWEST = -3.0e38
"""A score, in powers of two, that still is a number."""
_ALIGNMENT = 16


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _FusedAttentionRunner(step, assets)


class _FusedAttentionRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        options = step.options
        self._region = step.region
        self._scale = float(options["scale"])
        self._mask_value = float(options["mask_value"])
        self._scalars = tuple(float(value) for value in options["scalars"])
        self._outputs = tuple(torch_dtype(name) for name in options["outputs"])
        self._mask = assets.weights[step.weights[0]] if step.weights else None
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        self._fixed = dict(self._launch.spec.constants)
        self._reader = AttentionReader.of(step, self._launch)

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the axes of the outputs lie in memory in the order of q's."""
        mask = self._mask if self._mask is not None else inputs[3] if len(inputs) > 3 else None
        given, sizes = self._reader.read(inputs)
        outputs = allocate_outputs(allocate, self._outputs, sizes, given[0])
        if sizes.B * sizes.H * sizes.S == 0:
            return outputs
        tensors = [self._reader.readable(tensor, sizes.B) for tensor in given]
        masks, strides = self._masked(mask, sizes) if self._fixed["MASK"] != "none" else ([], [])
        steps = self._reader.steps(tensors)
        value = [max(self._mask_value * LOG2E, _LOWEST) if self._mask_value > -math.inf else -math.inf]
        last = [self._scale * LOG2E, *(value if self._fixed["MASK"] in ("kept", "dropped") else [])]
        arguments = [*tensors, *masks, *outputs, *self._scalars, sizes.H, sizes.S, sizes.T, *steps, *strides]
        arguments += [*outputs[0].stride()[:3], *last]
        programs = -(-sizes.S // int(self._fixed["BLOCK_M"])) * sizes.B * sizes.H
        self._launch((programs, 1, 1), arguments)
        return outputs

    def _masked(self, mask: Tensor | None, sizes: AttentionSizes) -> tuple[list[Tensor], list[int]]:
        """The mask, and its strides over samples, heads and queries in units."""
        if mask is None:
            raise DataError(f"region '{self._region}' has no mask")
        unit = int(self._fixed["MASK_UNIT"])
        mask = mask[(None,) * (4 - mask.dim())]
        whole = (sizes.B, sizes.H, sizes.S)
        is_good = all(size in (1, most) for size, most in zip(mask.shape[:3], whole, strict=True))
        keys, T = mask.shape[3], sizes.T
        is_wide = keys in (1, T) or (self._mask is not None and keys > T)
        if not (is_good and is_wide) or (mask.shape[2] != 1 and not self._fixed["HAS_MASK_ROWS"]):
            raise self._reader.error(mask)
        room = -T % unit
        is_readable = mask.stride(3) == 1 and mask.data_ptr() % _ALIGNMENT == 0
        if keys < T + room or not is_readable or any(step % unit for step in _steps(mask)):
            filled = mask.new_zeros((*mask.shape[:3], T + room))
            filled[..., :T] = mask[..., :T]
            mask = filled
        if (mask.shape[2] - 1) * mask.stride(2) > MAX_OFFSET:
            raise self._reader.error(mask, hint="shorter sequences: offsets in the mask are beyond 32 bits")
        return [mask], [step // unit for step in _steps(mask)]


def _steps(mask: Tensor) -> list[int]:
    """Strides of the first three axes; 0 along those of one element."""
    sizes = zip(mask.stride()[:3], mask.shape[:3], strict=True)
    return [stride if size > 1 else 0 for stride, size in sizes]
