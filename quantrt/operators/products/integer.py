# SPDX-License-Identifier: Apache-2.0
"""Products of integers: MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv.

Codes minus zero points are at most 2**16 in size, so that their products and sums stay whole numbers below
2**53 for any inner size under 2**21: float64 holds every partial sum exactly, in whatever order a device
adds. On a GPU torch has neither an integer convolution nor an integer matrix product; this is exact there
too. cuDNN is left out: it may choose a Fourier or Winograd algorithm, with fractions in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from quantrt.operators.elementwise.cast import widen
from quantrt.operators.elementwise.quantize import requantize
from quantrt.operators.images.conv import conv
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "conv_integer", "matmul_integer", "qlinear_conv", "qlinear_matmul"]


def matmul_integer(
    a: torch.Tensor,
    b: torch.Tensor,
    a_zero_point: torch.Tensor | None = None,
    b_zero_point: torch.Tensor | None = None,
) -> torch.Tensor:
    """(A - a_zero_point) @ (B - b_zero_point), int32.

    Zero points are per tensor, per row of A, per column of B.
    """
    return _to_int32(torch.matmul(_rows(a, a_zero_point), _columns(b, b_zero_point)))


def qlinear_matmul(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    a_zero_point: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    b_zero_point: torch.Tensor,
    y_scale: torch.Tensor,
    y_zero_point: torch.Tensor,
) -> torch.Tensor:
    """The same product, scaled and quantized to the type of y_zero_point."""
    product = torch.matmul(_rows(a, a_zero_point), _columns(b, b_zero_point))
    scale = _per_row(a_scale) * b_scale.to(torch.float64)
    return requantize(product * scale, _per_row(y_scale), _per_row(y_zero_point, keep=True))


def conv_integer(
    x: torch.Tensor,
    w: torch.Tensor,
    x_zero_point: torch.Tensor | None = None,
    w_zero_point: torch.Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> torch.Tensor:
    """Convolution of x - x_zero_point with w - w_zero_point (scalar or [M]), int32; padding is zero_point."""
    with torch.backends.cudnn.flags(enabled=False):
        product = conv(
            _shifted(x, x_zero_point),
            _filters(w, w_zero_point),
            auto_pad=auto_pad,
            dilations=dilations,
            group=group,
            kernel_shape=kernel_shape,
            pads=pads,
            strides=strides,
        )
    return _to_int32(product)


def qlinear_conv(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    x_zero_point: torch.Tensor,
    w: torch.Tensor,
    w_scale: torch.Tensor,
    w_zero_point: torch.Tensor,
    y_scale: torch.Tensor,
    y_zero_point: torch.Tensor,
    b: torch.Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> torch.Tensor:
    """The same convolution plus b (int32, in units of x_scale * w_scale), scaled and quantized.

    Args:
        w_scale, w_zero_point: scalar or [M].
    """
    total = conv_integer(
        x,
        w,
        x_zero_point,
        w_zero_point,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    ).to(torch.float64)
    channel = [-1] + [1] * (x.dim() - 2)
    if b is not None:
        total = total + b.to(torch.float64).reshape(channel)
    scale = x_scale.to(torch.float64).reshape(()) * w_scale.to(torch.float64).reshape(channel)
    return requantize(total * scale, y_scale.reshape(()), y_zero_point.reshape(()))


def _shifted(x: torch.Tensor, zero_point: torch.Tensor | None) -> torch.Tensor:
    wide = widen(x).to(torch.float64)
    return wide if zero_point is None else wide - widen(zero_point).to(torch.float64)


def _rows(a: torch.Tensor, zero_point: torch.Tensor | None) -> torch.Tensor:
    return _shifted(a, None if zero_point is None else _per_row(zero_point, keep=True))


def _columns(b: torch.Tensor, zero_point: torch.Tensor | None) -> torch.Tensor:
    return _shifted(b, zero_point)


def _per_row(v: torch.Tensor, *, keep: bool = False) -> torch.Tensor:
    """A vector over rows as a column, which broadcasts to a matrix; other shapes as they are."""
    shaped = v.reshape(-1, 1) if v.dim() == 1 and v.numel() > 1 else v
    return shaped if keep else shaped.to(torch.float64)


def _filters(w: torch.Tensor, zero_point: torch.Tensor | None) -> torch.Tensor:
    if zero_point is not None and zero_point.numel() > 1:
        zero_point = zero_point.reshape(-1, *[1] * (w.dim() - 1))
    return _shifted(w, zero_point)


def _to_int32(x: torch.Tensor) -> torch.Tensor:
    """Whole float64 numbers as int32, wrapped as an int32 accumulator would."""
    return x.to(torch.int64).to(torch.int32)


OPERATORS = (
    Operator("MatMulInteger", 10, matmul_integer),
    Operator("ConvInteger", 10, conv_integer),
    Operator("QLinearMatMul", 10, qlinear_matmul),
    Operator("QLinearConv", 10, qlinear_conv),
)
