# SPDX-License-Identifier: Apache-2.0
"""Elements by index: Gather, Scatter and their relatives, OneHot, NonZero. Negative indices count back."""

from __future__ import annotations

import math

import torch

from quantrt.errors import ModelError
from quantrt.operators.element_types import restored, stored
from quantrt.operators.operator import Operator

__all__ = [
    "OPERATORS",
    "gather",
    "gather_elements",
    "gather_nd",
    "non_zero",
    "one_hot",
    "scatter_elements",
    "scatter_nd",
    "tensor_scatter",
]

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
"""ONNX's reductions by torch's names."""


def gather(x: torch.Tensor, indices: torch.Tensor, *, axis: int = 0) -> torch.Tensor:
    """x at the indices along the axis: shape[:axis] + indices.shape + shape[axis + 1:]."""
    axis = axis % x.dim()
    picked = x.index_select(axis, _positive(indices, x.shape[axis]).reshape(-1))
    return picked.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def gather_elements(x: torch.Tensor, indices: torch.Tensor, *, axis: int = 0) -> torch.Tensor:
    """Per element of indices, x at the same place with the index along the axis."""
    return torch.gather(x, axis, _positive(indices, x.shape[axis]))


def gather_nd(x: torch.Tensor, indices: torch.Tensor, *, batch_dims: int = 0) -> torch.Tensor:
    """x at index tuples: the last axis of indices [*batch, ..., k] names k axes of x after batch_dims."""
    batch, k = x.shape[:batch_dims], indices.shape[-1]
    axes = x.shape[batch_dims : batch_dims + k]
    rest = x.shape[batch_dims + k :]
    flat = x.reshape(math.prod(batch), math.prod(axes), *rest)
    places = _linear(indices, axes).reshape(math.prod(batch), -1)
    rows = torch.arange(flat.shape[0], device=x.device).reshape(-1, 1)
    return flat[rows, places].reshape([*indices.shape[:-1], *rest])


def scatter_elements(
    x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, *, axis: int = 0, reduction: str = "none"
) -> torch.Tensor:
    """x with updates at the same places, the index along the axis replaced; none: the last update stays."""
    places = _positive(indices, x.shape[axis])
    if reduction == "none":
        return restored(stored(x).scatter(axis, places, stored(updates)), x.dtype)
    return x.scatter_reduce(axis, places, updates, _reduction(reduction), include_self=True)


def scatter_nd(
    x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, *, reduction: str = "none"
) -> torch.Tensor:
    """x with updates [..., *rest] at index tuples [..., k] into its first k axes."""
    k = indices.shape[-1]
    flat = stored(x).reshape(math.prod(x.shape[:k]), -1)
    places = _linear(indices, x.shape[:k]).reshape(-1)
    rows = stored(updates).reshape(places.numel(), flat.shape[1])
    if reduction == "none":
        changed = flat.index_copy(0, places, rows)
    elif flat.dtype != x.dtype:
        raise ModelError(f"cannot scatter with reduction {reduction}", got=f"elements of type {x.dtype}")
    else:
        spread = places.reshape(-1, 1).expand(-1, flat.shape[1])
        changed = flat.scatter_reduce(0, spread, rows, _reduction(reduction), include_self=True)
    return restored(changed.reshape(x.shape), x.dtype)


def tensor_scatter(
    cache: torch.Tensor,
    update: torch.Tensor,
    write_indices: torch.Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> torch.Tensor:
    """The cache [B, ...] with the update written along the axis from write_indices[b] on.

    Args:
        mode: linear, or circular: positions beyond the end continue at the start.
    """
    axis = axis % cache.dim()
    moved, rows = cache.movedim(axis, 1).clone(), update.movedim(axis, 1)
    batch = torch.arange(cache.shape[0], device=cache.device).reshape(-1, 1)
    first = torch.zeros_like(batch) if write_indices is None else write_indices.reshape(-1, 1)
    places = first + torch.arange(rows.shape[1], device=cache.device)
    if mode == "circular":
        places = places % moved.shape[1]
    moved[batch, places] = rows
    return moved.movedim(1, axis)


def one_hot(
    indices: torch.Tensor, depth: torch.Tensor, values: torch.Tensor, *, axis: int = -1
) -> torch.Tensor:
    """values[1] where the new axis equals the index, values[0] elsewhere and for indices out of range."""
    count = int(depth.reshape(-1)[0].item())
    axis = axis % (indices.dim() + 1)
    whole = indices.to(torch.int64)
    whole = torch.where(whole < 0, whole + count, whole).unsqueeze(axis)
    levels = torch.arange(count, device=indices.device).reshape([-1] + [1] * (indices.dim() - axis))
    return restored(torch.where(whole == levels, stored(values)[1], stored(values)[0]), values.dtype)


def non_zero(x: torch.Tensor) -> torch.Tensor:
    """Indices of the elements that are not 0, int64 [rank, count]; a scalar counts as shape [1]."""
    return torch.nonzero(x if x.dim() else x.reshape(1)).T.contiguous()


def _positive(indices: torch.Tensor, size: int) -> torch.Tensor:
    whole = indices.to(torch.int64)
    return torch.where(whole < 0, whole + size, whole)


def _linear(indices: torch.Tensor, sizes: torch.Size) -> torch.Tensor:
    """Index tuples [..., k] as positions in the flattened axes; each index is held against its axis.

    Off the CPU an index outside its axis is held to it: to report it, the host would have to wait.
    """
    limits = torch.tensor(sizes, dtype=torch.int64, device=indices.device)
    whole = indices.to(torch.int64)
    whole = torch.where(whole < 0, whole + limits, whole)
    if indices.device.type != "cpu":
        whole = torch.minimum(whole.clamp(min=0), limits - 1)
    elif bool(((whole < 0) | (whole >= limits)).any()):
        raise ModelError("an index lies outside its axis", expected=f"indices into {list(sizes)}")
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return (whole * torch.tensor(strides, dtype=torch.int64, device=indices.device)).sum(-1)


def _reduction(name: str) -> str:
    if name not in _REDUCTIONS:
        raise ModelError(
            "unknown reduction of a scatter", got=name, expected=", ".join(("none", *_REDUCTIONS))
        )
    return _REDUCTIONS[name]


OPERATORS = (
    Operator("Gather", 1, gather, moves=True),
    Operator("GatherElements", 11, gather_elements, moves=True),
    Operator("GatherND", 11, gather_nd, moves=True),
    Operator("Scatter", 9, scatter_elements),
    Operator("ScatterElements", 11, scatter_elements),
    Operator("ScatterND", 11, scatter_nd),
    Operator("TensorScatter", 24, tensor_scatter, moves=True),
    Operator("OneHot", 9, one_hot),
    Operator("NonZero", 9, non_zero),
)
