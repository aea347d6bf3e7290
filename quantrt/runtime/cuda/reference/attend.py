# SPDX-License-Identifier: Apache-2.0
"""What attention means, in torch and float64; masks as any backend can take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from quantrt.regions.region import Attention

__all__ = ["attend", "axes_in_memory", "laid_like"]

Tensor = torch.Tensor

SCORES = 1 << 25
"""At a time, 256 MB in float64: a reference has room wherever there is some for what is held against it."""


def attend(formula: Attention, inputs: Sequence[Tensor], constants: Mapping[str, Tensor]) -> Tensor:
    """The result in float32, its axes in memory in the order of q's, as fused kernels leave them.

    Args:
        inputs: q, k, v, and the mask where it is no constant, or the offsets of packed samples.
        constants: holds the mask where it is one.
    """
    if formula.is_packed:
        return _attend_packed(formula, inputs)
    q, k, v = (tensor.double() for tensor in inputs[:3])
    k = k.transpose(-1, -2) if formula.is_transposed else k
    groups = q.shape[1] // k.shape[1] if k.shape[1] else 1
    k, v = (tensor.repeat_interleave(groups, 1) if groups > 1 else tensor for tensor in (k, v))
    mask = constants[formula.mask_constant] if formula.mask_constant else None
    mask = inputs[3] if formula.has_mask else mask
    queries = q.shape[2]
    count = max(1, SCORES // max(1, q.shape[0] * q.shape[1] * k.shape[2]))
    parts = []
    for first in range(0, max(queries, 1), count):
        rows = slice(first, first + count)
        own = mask if mask is None or mask.dim() < 2 or mask.shape[-2] == 1 else mask[..., rows, :]
        weights = _weights(formula, q[:, :, rows], k, own, first)
        parts.append(torch.matmul(weights, v).float())
    return laid_like(torch.cat(parts, 2), inputs[0])


def _weights(formula: Attention, q: Tensor, k: Tensor, mask: Tensor | None, first: int) -> Tensor:
    """Softmax of the scores of some queries.

    Args:
        mask: of these queries.
        first: how many queries there are before them.
    """
    scores = torch.matmul(q, k.transpose(-1, -2)).mul_(formula.scale)
    if mask is not None and formula.mask_kind == "added":
        scores = scores + mask.double()
    elif mask is not None:
        is_masked = mask if formula.mask_kind == "dropped" else ~mask
        scores = scores.masked_fill(is_masked, formula.mask_value)
    if formula.is_causal:
        is_later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1 + first)
        scores = scores.masked_fill(is_later, float("-inf"))
    # A query that may see nothing gets zeros, as ONNX's Attention has it, not softmax's 0 / 0.
    is_blind = scores.amax(-1, keepdim=True) == float("-inf")
    return torch.softmax(scores, -1).masked_fill_(is_blind, 0.0)


def _attend_packed(formula: Attention, inputs: Sequence[Tensor]) -> Tensor:
    """Of packed samples: with padding put back, a mask, and the padding taken out again."""
    q, k, v, offsets = inputs
    k = k.transpose(-1, -2) if formula.is_transposed else k
    (B, H, S, _), places = q.shape, torch.arange(q.shape[2], device=q.device)
    starts, is_there = offsets[:-1, None].long(), places < (offsets[1:] - offsets[:-1])[:, None]
    rows = (starts + places).clamp(max=B * S - 1).reshape(-1)
    padded = [
        x.transpose(1, 2).reshape(B * S, x.shape[1], -1)[rows].reshape(B, S, x.shape[1], -1).transpose(1, 2)
        for x in (q, k, v)
    ]
    # What is behind the last sample may be NaN, which no weight of 0 would silence.
    padded = [x.masked_fill(~is_there[:, None, :, None], 0.0) for x in padded]
    plain = replace(formula, is_packed=False, is_transposed=False, has_mask=True, mask_kind="kept")
    y = attend(plain, [*padded, is_there[:, None, None, :]], {})
    packed = y.new_zeros(B * S, H, y.shape[3])
    rows = torch.where(is_there, starts + places, B * S).reshape(-1)
    packed = torch.cat([packed, packed[:1]]).index_copy(0, rows, y.transpose(1, 2).flatten(0, 1))[:-1]
    return laid_like(packed.reshape(B, S, H, -1).transpose(1, 2), q)


def laid_like(x: Tensor, other: Tensor) -> Tensor:
    """X without gaps, its axes in memory in the order of the other's."""
    order = axes_in_memory(other)
    inverse = sorted(range(x.dim()), key=order.__getitem__)
    return x.permute(order).contiguous().permute(inverse)


def axes_in_memory(x: Tensor) -> list[int]:
    """The axes from the outermost in memory to the innermost; those of one element keep their places."""
    sizes = zip(x.shape, x.stride(), strict=True)
    strides = [stride if size > 1 else 0 for size, stride in sizes]
    axes = [axis for axis, stride in enumerate(strides) if stride]
    moved = iter(sorted(axes, key=lambda axis: -strides[axis]))
    return [next(moved) if stride else axis for axis, stride in enumerate(strides)]
