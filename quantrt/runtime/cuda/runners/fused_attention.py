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
from quantrt.runtime.cuda.attend import axes_in_memory
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

Tensor = torch.Tensor

_LOG2E = math.log2(math.e)
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
        self._is_transposed = bool(options["is_transposed"])
        self._mask_value = float(options["mask_value"])
        self._dtype = torch_dtype(options["dtype"])
        self._scalars = tuple(float(value) for value in options["scalars"])
        self._outputs = tuple(torch_dtype(name) for name in options["outputs"])
        self._mask = assets.weights[step.weights[0]] if step.weights else None
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        self._fixed = dict(self._launch.spec.constants)

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the axes of the outputs lie in memory in the order of q's."""
        q, k, v = (tensor.to(self._dtype) for tensor in inputs[:3])
        k = k.transpose(-1, -2) if self._is_transposed else k
        mask = self._mask if self._mask is not None else inputs[3] if len(inputs) > 3 else None
        sizes = self._sizes(q, k, v)
        order = axes_in_memory(q)[:3] if axes_in_memory(q)[3] == 3 else [0, 1, 2]
        outputs = [
            self._output(allocate, number, dtype, sizes, order) for number, dtype in enumerate(self._outputs)
        ]
        B, H, S, T, _ = sizes
        if B * H * S == 0:
            return outputs
        tensors = [self._readable(tensor.expand(B, -1, -1, -1)) for tensor in (q, k, v)]
        masks, strides = self._masked(mask, (B, H, S, T)) if self._fixed["MASK"] != "none" else ([], [])
        unit = int(self._fixed["UNIT"])
        steps = [step // unit for tensor in tensors for step in tensor.stride()[:3]]
        value = [max(self._mask_value * _LOG2E, _LOWEST) if self._mask_value > -math.inf else -math.inf]
        last = [self._scale * _LOG2E, *(value if self._fixed["MASK"] in ("kept", "dropped") else [])]
        arguments = [*tensors, *masks, *outputs, *self._scalars, H, S, T, *steps, *strides]
        arguments += [*outputs[0].stride()[:3], *last]
        programs = -(-S // int(self._fixed["BLOCK_M"])) * B * H
        self._launch((programs, 1, 1), arguments)
        return outputs

    def _sizes(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[int, int, int, int, int]:
        """B, H, S, T, D."""
        is_good = (
            q.dim() == k.dim() == v.dim() == 4
            and q.shape[1] == k.shape[1] * int(self._fixed["GROUPS"])
            and k.shape[1:] == v.shape[1:]
            and q.shape[3] == k.shape[3] == int(self._fixed["D"])
            and len({tensor.shape[0] for tensor in (q, k, v)} - {1}) <= 1
        )
        if not is_good:
            raise self._error(q, k, v)
        B = max(q.shape[0], k.shape[0], v.shape[0])
        return B, q.shape[1], q.shape[2], k.shape[2], q.shape[3]

    def _error(self, *tensors: Tensor, hint: str | None = None) -> DataError:
        groups, size = int(self._fixed["GROUPS"]), int(self._fixed["D"])
        return DataError(
            f"cannot attend in region '{self._region}'",
            got=", ".join(str(list(tensor.shape)) for tensor in tensors),
            expected=f"q [B, {groups} G, S, {size}], k and v [B, G, T, {size}], a mask as wide as the scores",
            hint=hint,
        )

    def _output(
        self, allocate: Allocate, number: int, dtype: torch.dtype, sizes: tuple[int, ...], order: list[int]
    ) -> Tensor:
        """[B, H, S, D], the first three axes in memory in this order."""
        B, H, S, _, D = sizes
        stored = allocate(number, [*((B, H, S)[axis] for axis in order), D], dtype)
        return stored.permute(*(order.index(axis) for axis in range(3)), 3)

    def _readable(self, tensor: Tensor) -> Tensor:
        """The tensor, copied to [B, S, H, D] in memory where the kernel could not read its rows."""
        unit = int(self._fixed["UNIT"])
        is_dense = tensor.stride(3) == 1 or tensor.shape[3] == 1
        is_aligned = tensor.data_ptr() % _ALIGNMENT == 0
        is_even = all(step % unit == 0 for step in tensor.stride()[:3])
        if is_dense and is_aligned and is_even and _reach(tensor) <= MAX_OFFSET:
            return tensor
        # Not contiguous(), which leaves alone what is dense and not aligned.
        packed = tensor.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)
        if _reach(packed) > MAX_OFFSET:
            raise self._error(tensor, hint="shorter sequences: offsets in a sample are beyond 32 bits")
        return packed

    def _masked(
        self, mask: Tensor | None, scores: tuple[int, int, int, int]
    ) -> tuple[list[Tensor], list[int]]:
        """The mask, and its strides over samples, heads and queries in units."""
        if mask is None:
            raise DataError(f"region '{self._region}' has no mask")
        unit = int(self._fixed["MASK_UNIT"])
        mask = mask[(None,) * (4 - mask.dim())]
        is_good = all(size in (1, whole) for size, whole in zip(mask.shape[:3], scores[:3], strict=True))
        keys, T = mask.shape[3], scores[3]
        is_wide = keys in (1, T) or (self._mask is not None and keys > T)
        if not (is_good and is_wide) or (mask.shape[2] != 1 and not self._fixed["HAS_MASK_ROWS"]):
            raise self._error(mask)
        room = -T % unit
        is_readable = mask.stride(3) == 1 and mask.data_ptr() % _ALIGNMENT == 0
        if keys < T + room or not is_readable or any(step % unit for step in _steps(mask)):
            filled = mask.new_zeros((*mask.shape[:3], T + room))
            filled[..., :T] = mask[..., :T]
            mask = filled
        if (mask.shape[2] - 1) * mask.stride(2) > MAX_OFFSET:
            raise self._error(mask, hint="shorter sequences: offsets in the mask are beyond 32 bits")
        return [mask], [step // unit for step in _steps(mask)]


def _steps(mask: Tensor) -> list[int]:
    """Strides of the first three axes; 0 along those of one element."""
    sizes = zip(mask.stride()[:3], mask.shape[:3], strict=True)
    return [stride if size > 1 else 0 for stride, size in sizes]


def _reach(tensor: Tensor) -> int:
    """Elements from the first of a sample to the last."""
    return sum(
        (size - 1) * stride for size, stride in zip(tensor.shape[1:], tensor.stride()[1:], strict=True)
    )
