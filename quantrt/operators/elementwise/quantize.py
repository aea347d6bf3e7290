# SPDX-License-Identifier: Apache-2.0
"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: per tensor, per axis, in blocks; any zero point.

q = clip(round_half_even(x / scale) + zero_point, qmin, qmax)        x = (q - zero_point) * scale
"""

from __future__ import annotations

import torch

from quantrt.errors import ModelError
from quantrt.operators.element_types import INTEGER_RANGES, torch_type
from quantrt.operators.elementwise.cast import convert, widen
from quantrt.operators.operator import Operator

__all__ = [
    "OPERATORS",
    "dequantize_linear",
    "dynamic_quantize_linear",
    "quantize_linear",
    "requantize",
]


def quantize_linear(
    x: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> torch.Tensor:
    """Integer, float8 or float4 codes of x.

    Args:
        scale: scalar, [size of the axis], or the shape of x with the axis divided by block_size.
        zero_point: shaped like scale; its type is that of the result. Absent: output_dtype, or uint8.
        precision: type of the division; that of scale when it is not given.
    """
    target = _target_type(zero_point, output_dtype)
    divided_in = torch_type(precision) if precision else scale.dtype
    spread = _spread(scale, x, axis, block_size).to(divided_in)
    ratio = (x.to(divided_in) / spread).to(torch.promote_types(divided_in, torch.float32))
    zero = None if zero_point is None else _spread(widen(zero_point), x, axis, block_size)
    return _encode(ratio, zero, target, bool(saturate))


def dequantize_linear(
    x: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> torch.Tensor:
    """(x - zero_point) * scale in the type of scale or output_dtype; multiplied in float32 or wider."""
    result = torch_type(output_dtype) if output_dtype else scale.dtype
    codes = widen(x)
    if not codes.is_floating_point():
        codes = codes.to(torch.int64)
    if zero_point is not None:
        codes = codes - _spread(widen(zero_point), x, axis, block_size).to(codes.dtype)
    wide = torch.promote_types(result, torch.float32)
    return (codes.to(wide) * _spread(scale, x, axis, block_size).to(wide)).to(result)


def dynamic_quantize_linear(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """uint8 codes of x with the scale and zero point of its own range, widened to contain 0.

    A range of zero gives scale 1.
    """
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    low = torch.minimum(x.min(), zero) if x.numel() else zero
    high = torch.maximum(x.max(), zero) if x.numel() else zero
    scale = (high - low) / 255
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero_point = torch.round(-low / scale).clamp(0, 255)
    codes = (torch.round(x / scale) + zero_point).clamp(0, 255)
    return codes.to(torch.uint8), scale, zero_point.to(torch.uint8)


def requantize(real: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> torch.Tensor:
    """Codes of a float64 result on the grid of one scale and zero point; used by the QLinear operators."""
    ratio = real / scale.to(torch.float64)
    return _encode(ratio, widen(zero_point), zero_point.dtype, True)


def _encode(
    ratio: torch.Tensor, zero: torch.Tensor | None, target: torch.dtype, saturate: bool
) -> torch.Tensor:
    if target not in INTEGER_RANGES:
        shifted = ratio if zero is None else ratio + zero.to(ratio.dtype)
        return convert(shifted, target, saturate=saturate)
    low, high = INTEGER_RANGES[target]
    # Held to an exact range first: what lies beyond it is clipped in any case.
    reach = 2.0**24
    codes = torch.nan_to_num(torch.round(ratio), nan=float("-inf")).clamp(-reach, reach).to(torch.int64)
    codes = codes if zero is None else codes + zero.to(torch.int64)
    return convert(codes.clamp(low, high), target)


def _target_type(zero_point: torch.Tensor | None, output_dtype: int) -> torch.dtype:
    if zero_point is None:
        return torch_type(output_dtype) if output_dtype else torch.uint8
    if output_dtype and torch_type(output_dtype) != zero_point.dtype:
        raise ModelError(
            "QuantizeLinear's output_dtype is not the type of its zero point",
            got=str(torch_type(output_dtype)),
            expected=str(zero_point.dtype),
        )
    return zero_point.dtype


def _spread(v: torch.Tensor, x: torch.Tensor, axis: int, block_size: int) -> torch.Tensor:
    """A scale or zero point in a shape that broadcasts to x."""
    if v.numel() == 1 and not block_size:
        return v.reshape(())
    axis = axis % x.dim()
    if block_size:
        repeated = v.repeat_interleave(block_size, axis)
        if repeated.shape[axis] < x.shape[axis]:
            raise ModelError(
                "the scales do not cover the blocked axis",
                got=f"{v.shape[axis]} blocks of {block_size}",
                expected=f"{x.shape[axis]} elements",
            )
        return repeated.narrow(axis, 0, x.shape[axis])
    if v.dim() != 1 or v.shape[0] != x.shape[axis]:
        raise ModelError(
            "a scale does not fit its axis",
            got=f"shape {list(v.shape)} for axis {axis} of {list(x.shape)}",
            expected=f"a scalar or [{x.shape[axis]}]",
        )
    return v.reshape([-1] + [1] * (x.dim() - 1 - axis))


OPERATORS = (
    Operator("QuantizeLinear", 10, quantize_linear),
    Operator("DequantizeLinear", 10, dequantize_linear),
    Operator("DynamicQuantizeLinear", 11, dynamic_quantize_linear),
)
