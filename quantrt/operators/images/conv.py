# SPDX-License-Identifier: Apache-2.0
"""Conv, ConvTranspose and DeformConv in one, two or three spatial dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from quantrt.errors import ModelError
from quantrt.operators.images.spatial import Window, make_window, pad_spatial
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "conv", "conv_transpose", "deform_conv"]


def conv(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> torch.Tensor:
    """Cross-correlation of x [N, C, ...] with w [M, C / group, *kernel], plus b [M]."""
    _check_kernel(kernel_shape, w)
    window = make_window(
        x.shape[2:], w.shape[2:], strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )
    function = _by_rank((functional.conv1d, functional.conv2d, functional.conv3d), x)
    if window.is_symmetric:
        return function(x, w, b, window.strides, window.before, window.dilations, group)
    return function(
        pad_spatial(x, window.before, window.after), w, b, window.strides, 0, window.dilations, group
    )


def conv_transpose(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> torch.Tensor:
    """The transpose of conv: x [N, C, ...], w [C, M / group, *kernel] to [N, M, ...].

    The unpadded result has (n - 1) * stride + extent elements per axis; output_padding adds to its end,
    pads cut from both ends. output_shape, or auto_pad SAME (n * stride), determines the pads instead.
    """
    _check_kernel(kernel_shape, w)
    rank = x.dim() - 2
    extra = tuple(output_padding or [0] * rank)
    window = make_window(
        x.shape[2:],
        w.shape[2:],
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad="NOTSET" if output_shape else auto_pad,
    )
    before, after = window.before, window.after
    full = [(n - 1) * s + e for n, s, e in zip(x.shape[2:], window.strides, window.extents, strict=True)]
    target = tuple(output_shape or ())[-rank:]
    if not target and window.is_same:
        target = tuple(n * s for n, s in zip(x.shape[2:], window.strides, strict=True))
    if target:
        totals = [n + e - t for n, e, t in zip(full, extra, target, strict=True)]
        less, more = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        before, after = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    function = _by_rank(
        (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d), x
    )
    y = function(x, w, None, window.strides, 0, 0, group, window.dilations)
    y = pad_spatial(y, [-n for n in before], [e - n for e, n in zip(extra, after, strict=True)])
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def deform_conv(
    x: torch.Tensor,
    w: torch.Tensor,
    offset: torch.Tensor,
    b: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> torch.Tensor:
    """Conv whose taps are moved by offset and scaled by mask (Deformable ConvNets v2, arXiv:1811.11168).

    Args:
        x: [N, C, H, W], read between pixels bilinearly, 0 outside.
        offset: [N, offset_group * kh * kw * 2, oh, ow], the pair (dy, dx) per tap.
        mask: [N, offset_group * kh * kw, oh, ow].
    """
    if x.dim() != 4:
        raise ModelError("DeformConv is for images", got=f"rank {x.dim()}", expected="rank 4")
    _check_kernel(kernel_shape, w)
    window = make_window(
        x.shape[2:], w.shape[2:], strides=strides, dilations=dilations, pads=pads, auto_pad="NOTSET"
    )
    (n, c, _, _), (m, _, kh, kw) = x.shape, w.shape
    oh, ow = offset.shape[2:]
    shifts = offset.reshape(n, offset_group, kh, kw, 2, oh, ow)
    rows = _tap_places(kh, oh, window, 0, x).reshape(kh, 1, oh, 1) + shifts[:, :, :, :, 0]
    columns = _tap_places(kw, ow, window, 1, x).reshape(1, kw, 1, ow) + shifts[:, :, :, :, 1]
    taken = _read_between(x.reshape(n, offset_group, c // offset_group, *x.shape[2:]), rows, columns)
    if mask is not None:
        taken = taken * mask.reshape(n, offset_group, 1, kh, kw, oh, ow)
    taps = taken.reshape(n, group, c // group * kh * kw, oh * ow)
    y = torch.einsum("gmk,ngkp->ngmp", w.reshape(group, m // group, -1), taps).reshape(n, m, oh, ow)
    return y if b is None else y + b.reshape(-1, 1, 1)


def _tap_places(taps: int, outputs: int, window: Window, axis: int, like: torch.Tensor) -> torch.Tensor:
    """Where every tap of every output reads along the axis, before its offset: [taps, outputs]."""
    tap = torch.arange(taps, device=like.device, dtype=like.dtype) * window.dilations[axis]
    output = torch.arange(outputs, device=like.device, dtype=like.dtype) * window.strides[axis]
    return tap.reshape(-1, 1) + output - window.before[axis]


def _read_between(x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """x [N, G, C, H, W] at fractional places [N, G, ...]: bilinear, 0 outside; [N, G, C, ...]."""
    n, g, c, h, w = x.shape
    flat = x.reshape(n, g, c, h * w)
    top, left = rows.floor(), columns.floor()
    total = torch.zeros((n, g, c, rows[0, 0].numel()), dtype=x.dtype, device=x.device)
    for row, row_weight in ((top, 1 - (rows - top)), (top + 1, rows - top)):
        for column, column_weight in ((left, 1 - (columns - left)), (left + 1, columns - left)):
            inside = (row >= 0) & (row < h) & (column >= 0) & (column < w)
            place = row.clamp(0, h - 1).to(torch.int64) * w + column.clamp(0, w - 1).to(torch.int64)
            weight = (row_weight * column_weight * inside).reshape(n, g, 1, -1)
            index = place.reshape(n, g, 1, -1).expand(n, g, c, -1)
            total = total + torch.gather(flat, 3, index) * weight
    return total.reshape(n, g, c, *rows.shape[2:])


def _by_rank(
    functions: Sequence[Callable[..., torch.Tensor]], x: torch.Tensor
) -> Callable[..., torch.Tensor]:
    if not 3 <= x.dim() <= 5:
        raise ModelError(
            "convolutions have one to three spatial axes", got=f"an input of shape {list(x.shape)}"
        )
    return functions[x.dim() - 3]


def _check_kernel(kernel_shape: Sequence[int] | None, w: torch.Tensor) -> None:
    if kernel_shape is not None and tuple(kernel_shape) != tuple(w.shape[2:]):
        raise ModelError(
            "kernel_shape is not the shape of the weights",
            got=str(list(kernel_shape)),
            expected=str(list(w.shape[2:])),
        )


OPERATORS = (
    Operator("Conv", 1, conv),
    Operator("ConvTranspose", 1, conv_transpose),
    Operator("DeformConv", 19, deform_conv),
)
