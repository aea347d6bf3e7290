# SPDX-License-Identifier: Apache-2.0
"""q, k and v as kernels of ours read them where they lie, and results as the next step wants them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from quantrt.errors import DataError
from quantrt.kernels.attention.spec import MAX_OFFSET
from quantrt.plan.program import Step
from quantrt.runtime.cuda.reference.attend import axes_in_memory
from quantrt.runtime.cuda.runner import Allocate, Launcher
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = [
    "LOG2E",
    "AttentionReader",
    "AttentionSizes",
    "MaskReader",
    "allocate_outputs",
    "mask_strides",
    "value_of_masked",
]

Tensor = torch.Tensor

LOG2E = math.log2(math.e)
"""Kernels take exponentials as powers of two."""

_ALIGNMENT = 16

_LOWEST = -3.0e38
"""A score, in powers of two, that still is a number."""


@dataclass(frozen=True)
class AttentionSizes:
    """Samples, heads of q, queries, keys, and columns of a head; heads of k and v."""

    B: int
    H: int
    S: int
    T: int
    D: int
    G: int


@dataclass(frozen=True)
class AttentionReader:
    """How a step's kernel reads q, k and v.

    Attributes:
        dtype: that it multiplies.
        is_transposed: k comes as [B, G, D, T].
        groups: heads of q for each head of k and v.
        columns: of a head.
        unit: elements that strides are multiples of.
    """

    region: str
    dtype: torch.dtype
    is_transposed: bool
    groups: int
    columns: int
    unit: int

    @classmethod
    def of(cls, step: Step, launch: Launcher) -> AttentionReader:
        """That of a step with the options "is_transposed" and "dtype"."""
        fixed = dict(launch.spec.constants)
        return cls(
            step.region,
            torch_dtype(step.options["dtype"]),
            bool(step.options["is_transposed"]),
            int(fixed["GROUPS"]),
            int(fixed["D"]),
            int(fixed["UNIT"]),
        )

    def read(self, inputs: Sequence[Any]) -> tuple[list[Tensor], AttentionSizes]:
        """Q [B, H, S, D], k and v [B, G, T, D], the first of the inputs; B may be 1 where others have more.

        Raises:
            DataError: they do not fit each other, or the kernel; names the region.
        """
        q, k, v = (tensor.to(self.dtype) for tensor in inputs[:3])
        k = k.transpose(-1, -2) if self.is_transposed else k
        is_good = (
            q.dim() == k.dim() == v.dim() == 4
            and q.shape[1] == k.shape[1] * self.groups
            and k.shape[1:] == v.shape[1:]
            and q.shape[3] == k.shape[3] == self.columns
            and len({tensor.shape[0] for tensor in (q, k, v)} - {1}) <= 1
        )
        if not is_good:
            raise self.error(q, k, v)
        B = max(q.shape[0], k.shape[0], v.shape[0])
        return [q, k, v], AttentionSizes(B, q.shape[1], q.shape[2], k.shape[2], q.shape[3], k.shape[1])

    def readable(self, tensor: Tensor, batch: int) -> Tensor:
        """The tensor for all samples, copied to [B, S, H, D] in memory where its rows could not be read.

        Raises:
            DataError: a sample that is beyond 32-bit offsets; names the region.
        """
        tensor = tensor.expand(batch, -1, -1, -1)
        is_dense = tensor.stride(3) == 1 or tensor.shape[3] == 1
        is_aligned = tensor.data_ptr() % _ALIGNMENT == 0
        is_even = all(step % self.unit == 0 for step in tensor.stride()[:3])
        if is_dense and is_aligned and is_even and _reach(tensor) <= MAX_OFFSET:
            return tensor
        # Not contiguous(), which leaves alone what is dense and not aligned.
        packed = tensor.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)
        if _reach(packed) > MAX_OFFSET:
            raise self.error(tensor, hint="shorter sequences: offsets in a sample are beyond 32 bits")
        return packed

    def with_codes(
        self, given: Sequence[Tensor], coded: Sequence[Tensor], are_floats: Sequence[bool], batch: int
    ) -> tuple[list[Tensor], Sequence[Tensor]]:
        """Q, k and v, each as it can be read or as its codes; and the scales of codes.

        Args:
            given: q, k and v as floats.
            coded: codes and scales in turns, of those that are no floats.
        """
        codes = iter(coded[0::2])
        operands = [
            self.readable(tensor, batch) if is_float else next(codes)
            for tensor, is_float in zip(given, are_floats, strict=True)
        ]
        return operands, coded[1::2]

    def steps(self, tensors: Sequence[Tensor]) -> list[int]:
        """Strides of the first three axes of each, in units."""
        return [step // self.unit for tensor in tensors for step in tensor.stride()[:3]]

    def error(self, *tensors: Tensor, hint: str | None = None) -> DataError:
        """What is wrong with the shapes of tensors."""
        return DataError(
            f"cannot attend in region '{self.region}'",
            got=", ".join(str(list(tensor.shape)) for tensor in tensors),
            expected=f"q [B, {self.groups} G, S, {self.columns}], k and v [B, G, T, {self.columns}], "
            "a mask as wide as the scores",
            hint=hint,
        )


@dataclass(frozen=True)
class MaskReader:
    """How a step's kernel reads a mask.

    Attributes:
        reader: of q, k and v.
        constant: the mask where it is one.
        unit: elements that strides are multiples of.
        has_rows: it may differ from query to query.
    """

    reader: AttentionReader
    constant: Tensor | None
    unit: int
    has_rows: bool

    @classmethod
    def of(cls, reader: AttentionReader, constant: Tensor | None, launch: Launcher) -> MaskReader:
        """That of a kernel with the constants "MASK_UNIT" and "HAS_MASK_ROWS"."""
        fixed = dict(launch.spec.constants)
        return cls(reader, constant, int(fixed["MASK_UNIT"]), bool(fixed["HAS_MASK_ROWS"]))

    def read(self, inputs: Sequence[Any], sizes: AttentionSizes) -> Tensor:
        """The mask on four axes, its rows filled up to whole units.

        Args:
            inputs: q, k and v, and a mask that is no constant.

        Raises:
            DataError: there is no mask, or none that fits; names the region.
        """
        mask = self.constant if self.constant is not None else inputs[3] if len(inputs) > 3 else None
        if mask is None:
            raise DataError(f"region '{self.reader.region}' has no mask")
        mask = mask[(None,) * (4 - mask.dim())]
        whole = (sizes.B, sizes.H, sizes.S)
        is_good = all(size in (1, most) for size, most in zip(mask.shape[:3], whole, strict=True))
        keys, T = mask.shape[3], sizes.T
        is_wide = keys in (1, T) or (self.constant is not None and keys > T)
        if not (is_good and is_wide) or (mask.shape[2] != 1 and not self.has_rows):
            raise self.reader.error(mask)
        room = -T % self.unit
        is_readable = mask.stride(3) == 1 and mask.data_ptr() % _ALIGNMENT == 0
        if keys < T + room or not is_readable or any(step % self.unit for step in mask_strides(mask)):
            filled = mask.new_zeros((*mask.shape[:3], T + room))
            filled[..., :T] = mask[..., :T]
            mask = filled
        if (mask.shape[2] - 1) * mask.stride(2) > MAX_OFFSET:
            raise self.reader.error(mask, hint="shorter sequences: offsets in the mask are beyond 32 bits")
        return mask

    def read_box(self, inputs: Sequence[Any], sizes: AttentionSizes) -> Tensor:
        """The mask with one element along axes that it is repeated along; see `read`."""
        mask = self.read(inputs, sizes)
        for axis, step in enumerate(mask.stride()[:3]):
            mask = mask.narrow(axis, 0, 1) if step == 0 else mask
        return mask


def mask_strides(mask: Tensor) -> list[int]:
    """Strides of the first three axes; 0 along those of one element."""
    sizes = zip(mask.stride()[:3], mask.shape[:3], strict=True)
    return [stride if size > 1 else 0 for stride, size in sizes]


def value_of_masked(value: float) -> float:
    """What stands in the place of masked scores, as kernels read it: in powers of two, finite if it was."""
    return max(value * LOG2E, _LOWEST) if value > -math.inf else -math.inf


def allocate_outputs(
    allocate: Allocate, dtypes: tuple[torch.dtype, ...], sizes: AttentionSizes, q: Tensor
) -> list[Tensor]:
    """[B, H, S, D] for each type, the first three axes in memory in the order of q's."""
    order = axes_in_memory(q)[:3] if axes_in_memory(q)[3] == 3 else [0, 1, 2]
    shape = [*((sizes.B, sizes.H, sizes.S)[axis] for axis in order), sizes.D]
    axes = (*(order.index(axis) for axis in range(3)), 3)
    return [allocate(number, shape, dtype).permute(*axes) for number, dtype in enumerate(dtypes)]


def _reach(tensor: Tensor) -> int:
    """Elements from the first of a sample to the last."""
    return sum(
        (size - 1) * stride for size, stride in zip(tensor.shape[1:], tensor.stride()[1:], strict=True)
    )
