# SPDX-License-Identifier: Apache-2.0
"""q, k and v as kernels of ours read them where they lie, and results as the next step wants them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quantrt.errors import DataError
from quantrt.kernels.attention.spec import MAX_OFFSET
from quantrt.runtime.cuda.attend import axes_in_memory
from quantrt.runtime.cuda.runner import Allocate

__all__ = ["AttentionSizes", "allocate_outputs", "attention_error", "readable", "sizes_of"]

Tensor = torch.Tensor

_ALIGNMENT = 16


@dataclass(frozen=True)
class AttentionSizes:
    """Samples, heads of q, queries, keys, and columns of a head; heads of k and v."""

    B: int
    H: int
    S: int
    T: int
    D: int
    G: int


def sizes_of(region: str, q: Tensor, k: Tensor, v: Tensor, *, groups: int, columns: int) -> AttentionSizes:
    """The sizes of q [B, H, S, D], k and v [B, G, T, D]; B may be 1 where others have more.

    Raises:
        DataError: they do not fit each other, or the kernel; names the region.
    """
    is_good = (
        q.dim() == k.dim() == v.dim() == 4
        and q.shape[1] == k.shape[1] * groups
        and k.shape[1:] == v.shape[1:]
        and q.shape[3] == k.shape[3] == columns
        and len({tensor.shape[0] for tensor in (q, k, v)} - {1}) <= 1
    )
    if not is_good:
        raise attention_error(region, q, k, v, groups=groups, columns=columns)
    B = max(q.shape[0], k.shape[0], v.shape[0])
    return AttentionSizes(B, q.shape[1], q.shape[2], k.shape[2], q.shape[3], k.shape[1])


def attention_error(
    region: str, *tensors: Tensor, groups: int, columns: int, hint: str | None = None
) -> DataError:
    """What is wrong with the shapes of tensors."""
    return DataError(
        f"cannot attend in region '{region}'",
        got=", ".join(str(list(tensor.shape)) for tensor in tensors),
        expected=f"q [B, {groups} G, S, {columns}], k and v [B, G, T, {columns}], "
        "a mask as wide as the scores",
        hint=hint,
    )


def readable(region: str, tensor: Tensor, unit: int, *, groups: int) -> Tensor:
    """The tensor, copied to [B, S, H, D] in memory where a kernel could not read its rows.

    Args:
        unit: elements that its strides are multiples of.

    Raises:
        DataError: a sample that is beyond 32-bit offsets; names the region.
    """
    is_dense = tensor.stride(3) == 1 or tensor.shape[3] == 1
    is_aligned = tensor.data_ptr() % _ALIGNMENT == 0
    is_even = all(step % unit == 0 for step in tensor.stride()[:3])
    if is_dense and is_aligned and is_even and _reach(tensor) <= MAX_OFFSET:
        return tensor
    # Not contiguous(), which leaves alone what is dense and not aligned.
    packed = tensor.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)
    if _reach(packed) > MAX_OFFSET:
        hint = "shorter sequences: offsets in a sample are beyond 32 bits"
        raise attention_error(region, tensor, groups=groups, columns=tensor.shape[3], hint=hint)
    return packed


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
