# SPDX-License-Identifier: Apache-2.0
"""Normalizations. Statistics are computed in float32 at least: their squares leave the range of float16."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from quantrt.errors import ModelError
from quantrt.operators.element_types import torch_type
from quantrt.operators.operator import Operator

__all__ = [
    "OPERATORS",
    "batch_norm",
    "batch_norm_of_inference",
    "group_norm",
    "group_norm_by_group",
    "image_scaler",
    "instance_norm",
    "layer_norm",
    "lp_norm",
    "lrn",
    "mean_variance_norm",
    "rms_norm",
]

_FLOAT = 1  # ONNX's number of float32
_MEAN_VARIANCE_EPSILON = 1e-9  # ONNX operators, MeanVarianceNormalization: function body


def batch_norm_of_inference(
    x: torch.Tensor,
    scale: torch.Tensor,
    b: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
) -> torch.Tensor:
    """Opsets 7 to 13: scale * (x - mean) / sqrt(variance + epsilon) + b per channel, axis 1."""
    del momentum
    if spatial:
        return _normalize_channels(x, scale, b, mean, variance, epsilon)
    whole = [part.unsqueeze(0) for part in (scale, b, mean, variance)]  # statistics per element [C, ...]
    return ((x - whole[2]) / torch.sqrt(whole[3] + epsilon) * whole[0] + whole[1]).to(x.dtype)


def batch_norm(
    x: torch.Tensor,
    scale: torch.Tensor,
    b: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> tuple[torch.Tensor, ...]:
    """The same; in training with the statistics of x, and the running ones updated."""
    if not training_mode:
        return (_normalize_channels(x, scale, b, mean, variance, epsilon),)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    dims = (0, *range(2, x.dim()))
    batch_mean = wide.mean(dims)
    batch_variance = wide.var(dims, correction=0)
    y = _normalize_channels(x, scale, b, batch_mean, batch_variance, epsilon)
    running = [
        (old * momentum + new * (1 - momentum)).to(old.dtype)
        for old, new in ((mean, batch_mean), (variance, batch_variance))
    ]
    return (y, *running)


def instance_norm(
    x: torch.Tensor, scale: torch.Tensor, b: torch.Tensor, *, epsilon: float = 1e-5
) -> torch.Tensor:
    """x [N, C, ...] normalized over its spatial axes, then scale [C] and b [C]."""
    wide, _, _ = _standardize(x, tuple(range(2, x.dim())), epsilon)
    return (wide * _per_channel(scale, x) + _per_channel(b, x)).to(x.dtype)


def group_norm_by_group(
    x: torch.Tensor, scale: torch.Tensor, b: torch.Tensor, *, num_groups: int, epsilon: float = 1e-5
) -> torch.Tensor:
    """Opset 18: scale and b per group [num_groups]."""
    repeats = x.shape[1] // num_groups
    return group_norm(
        x,
        scale.repeat_interleave(repeats),
        b.repeat_interleave(repeats),
        num_groups=num_groups,
        epsilon=epsilon,
    )


def group_norm(
    x: torch.Tensor,
    scale: torch.Tensor,
    b: torch.Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = _FLOAT,
) -> torch.Tensor:
    """x [N, C, ...] normalized over each group of channels, then scale [C] and b [C]."""
    grouped = x.reshape(x.shape[0], num_groups, -1).to(_statistics_type(x, stash_type))
    wide, _, _ = _standardize(grouped, (2,), epsilon)
    return (wide.reshape(x.shape) * _per_channel(scale, x) + _per_channel(b, x)).to(x.dtype)


def layer_norm(
    x: torch.Tensor,
    scale: torch.Tensor,
    b: torch.Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = _FLOAT,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x normalized over the axes from `axis` on, then scale and b; mean and 1 / deviation in stash_type."""
    dims = tuple(range(axis % x.dim(), x.dim()))
    wide, mean, inverse = _standardize(x.to(_statistics_type(x, stash_type)), dims, epsilon)
    # ONNX casts back before it scales: the product has the type of x.
    y = wide.to(x.dtype) * scale
    return y if b is None else y + b, mean, inverse


def rms_norm(
    x: torch.Tensor, scale: torch.Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = _FLOAT
) -> torch.Tensor:
    """x / sqrt(mean(x ** 2) + epsilon) over the axes from `axis` on, times scale."""
    dims = tuple(range(axis % x.dim(), x.dim()))
    wide = x.to(_statistics_type(x, stash_type))
    root = torch.sqrt(wide.square().mean(dims, keepdim=True) + epsilon)
    return ((wide / root).to(x.dtype) * scale).to(scale.dtype)


def lp_norm(x: torch.Tensor, *, axis: int = -1, p: int = 2) -> torch.Tensor:
    """x / (sum of |x| ** p) ** (1 / p) along the axis; 0 where the sum is 0."""
    if p not in (1, 2):
        raise ModelError("LpNormalization has two norms", got=f"p = {p}", expected="1 or 2")
    norm = torch.linalg.vector_norm(x, p, axis, keepdim=True)
    return torch.where(norm == 0, torch.zeros_like(x), x / norm)


def lrn(
    x: torch.Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> torch.Tensor:
    """x / (bias + alpha / size * sum of x ** 2 over `size` neighbouring channels) ** beta.

    The neighbours of channel c are c - floor((size - 1) / 2) to c + ceil((size - 1) / 2).
    """
    before = (size - 1) // 2
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    squares = wide.square().movedim(1, -1)
    padded = torch.nn.functional.pad(squares, (before, size - 1 - before))
    total = padded.unfold(-1, size, 1).sum(-1).movedim(-1, 1)
    return (wide / (bias + alpha / size * total) ** beta).to(x.dtype)


def mean_variance_norm(x: torch.Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> torch.Tensor:
    """(x - mean) / (deviation + 1e-9) over the axes."""
    dims = tuple(axes)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    centred = wide - wide.mean(dims, keepdim=True)
    deviation = centred.square().mean(dims, keepdim=True).sqrt()
    return (centred / (deviation + _MEAN_VARIANCE_EPSILON)).to(x.dtype)


def image_scaler(x: torch.Tensor, *, bias: Sequence[float], scale: float = 1.0) -> torch.Tensor:
    """x * scale + bias[c]; experimental in ONNX 1.0 to 1.4 and still written by old exporters."""
    return x * scale + _per_channel(torch.tensor(bias, dtype=x.dtype, device=x.device), x)


def _normalize_channels(
    x: torch.Tensor,
    scale: torch.Tensor,
    b: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    epsilon: float,
) -> torch.Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    parts = [_per_channel(part.to(wide), x) for part in (scale, b, mean, variance)]
    return ((x.to(wide) - parts[2]) / torch.sqrt(parts[3] + epsilon) * parts[0] + parts[1]).to(x.dtype)


def _standardize(
    x: torch.Tensor, dims: tuple[int, ...], epsilon: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(x - mean) / sqrt(variance + epsilon), the mean, and the factor, in float32 or wider."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    inverse = torch.rsqrt(centred.square().mean(dims, keepdim=True) + epsilon)
    return centred * inverse, mean, inverse


def _statistics_type(x: torch.Tensor, stash_type: int) -> torch.dtype:
    """What ONNX asks for, but not less than float32: a float16 square overflows at 256."""
    return torch.promote_types(torch.promote_types(torch_type(stash_type), torch.float32), x.dtype)


def _per_channel(v: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return v.reshape(-1, *[1] * (x.dim() - 2))


OPERATORS = (
    Operator("BatchNormalization", 7, batch_norm_of_inference, until=13),
    Operator("BatchNormalization", 14, batch_norm),
    Operator("InstanceNormalization", 6, instance_norm),
    Operator("GroupNormalization", 18, group_norm_by_group, until=20),
    Operator("GroupNormalization", 21, group_norm),
    Operator("LayerNormalization", 17, layer_norm),
    Operator("RMSNormalization", 23, rms_norm),
    Operator("LpNormalization", 1, lp_norm),
    Operator("LRN", 1, lrn),
    Operator("MeanVarianceNormalization", 9, mean_variance_norm),
    Operator("ImageScaler", 1, image_scaler),
)
