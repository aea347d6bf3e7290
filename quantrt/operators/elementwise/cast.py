# SPDX-License-Identifier: Apache-2.0
"""Cast and CastLike between all numeric types, those narrower than a byte included."""

from __future__ import annotations

import torch

from quantrt.errors import ModelError
from quantrt.operators.element_types import (
    FLOAT4,
    INT2,
    INT4,
    INTEGER_RANGES,
    UINT2,
    UINT4,
    stored,
    torch_type,
)
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "cast", "cast_like", "convert", "widen"]

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
_FLOAT8_LIMITS = {
    torch.float8_e4m3fn: (464.0, False),
    torch.float8_e4m3fnuz: (248.0, True),
    torch.float8_e5m2: (61440.0, True),
    torch.float8_e5m2fnuz: (61440.0, True),
}
"""Half way from the largest value to the next one there would be, and whether that itself rounds up."""
_FLOAT4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""OCP Microscaling Formats 1.0, section 5.3.3: the magnitudes of E2M1 by code."""
_E8M0_NAN = 0xFF


def cast(x: torch.Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> torch.Tensor:
    """`x` in the type `to`.

    Args:
        to: an ONNX type number.
        saturate: for the float8 types: out of range becomes the largest value, not NaN or infinity.
        round_mode: for float8e8m0: up, down or nearest power of two.
    """
    return convert(x, torch_type(to), saturate=bool(saturate), round_mode=round_mode)


def cast_like(
    x: torch.Tensor, target: torch.Tensor, *, saturate: int = 1, round_mode: str = "up"
) -> torch.Tensor:
    """`x` in the type of `target`."""
    return convert(x, target.dtype, saturate=bool(saturate), round_mode=round_mode)


def convert(
    x: torch.Tensor, dtype: torch.dtype, *, saturate: bool = True, round_mode: str = "up"
) -> torch.Tensor:
    """`x` in the type `dtype`; integers wrap, floats round half to even, floats lose their fraction."""
    if x.dtype == dtype:
        return x
    x = widen(x)
    if dtype in _FLOAT8:
        return _to_float8(x, dtype, saturate)
    if dtype == torch.float8_e8m0fnu:
        return _to_e8m0(x, saturate, round_mode)
    if dtype == FLOAT4:
        return _to_float4(x).view(FLOAT4)
    if dtype in (INT4, UINT4, INT2, UINT2):
        return _to_narrow(x, dtype)
    if dtype == torch.uint64 and x.is_floating_point():
        return _to_uint64(x)
    if dtype in (torch.uint8, torch.uint16, torch.uint32) and x.is_floating_point():
        # C leaves negative floats undefined here; through int64 every device wraps alike.
        return x.to(torch.int64).to(dtype)
    return x.to(dtype)


def widen(x: torch.Tensor) -> torch.Tensor:
    """`x` in a type that torch computes with, the same values: float8 and float4 as float32, int4 as int8."""
    if x.dtype in _FLOAT8:
        return x.to(torch.float32)
    if x.dtype == torch.float8_e8m0fnu:
        return _from_e8m0(x.view(torch.uint8))
    if x.dtype == FLOAT4:
        codes = x.view(torch.uint8).to(torch.int64)
        magnitudes = torch.tensor(_FLOAT4_VALUES, device=x.device)[codes & 7]
        return torch.where((codes & 8) != 0, -magnitudes, magnitudes)
    if x.dtype in (INT4, UINT4, INT2, UINT2):
        return stored(x)
    return x


def _to_float8(x: torch.Tensor, dtype: torch.dtype, saturate: bool) -> torch.Tensor:
    """Held to the range first: devices differ in what their own casts make of numbers beyond it."""
    wide = x.to(torch.float32)
    largest = torch.finfo(dtype).max
    codes = wide.clamp(-largest, largest).to(dtype)
    if saturate:
        return codes
    limit, tie_is_beyond = _FLOAT8_LIMITS[dtype]
    beyond = (wide.abs() >= limit) if tie_is_beyond else (wide.abs() > limit)
    outside = torch.full_like(wide, torch.inf if dtype == torch.float8_e5m2 else torch.nan)
    outside = torch.copysign(outside, wide).to(dtype)
    return torch.where(beyond, outside.view(torch.uint8), codes.view(torch.uint8)).view(dtype)


def _to_float4(x: torch.Tensor) -> torch.Tensor:
    """Codes of the nearest E2M1 value, ties to the even code.

    The boundaries are the midpoints between neighbours. There is no NaN: it becomes -0, as in ml_dtypes.
    """
    wide = x.to(torch.float32)
    magnitude = wide.abs().contiguous()
    values = torch.tensor(_FLOAT4_VALUES, device=x.device)
    midpoints = ((values[1:] + values[:-1]) / 2).contiguous()
    below = torch.searchsorted(midpoints, magnitude, right=False)
    above = torch.searchsorted(midpoints, magnitude, right=True)
    code = torch.where(below % 2 == 0, below, above)
    code = torch.where(torch.isnan(wide), torch.zeros_like(code), code)
    negative = torch.signbit(wide) | torch.isnan(wide)
    return torch.where(negative, code | 8, code).to(torch.uint8)


def _to_e8m0(x: torch.Tensor, saturate: bool, round_mode: str) -> torch.Tensor:
    """The biased exponent of `x` rounded to a power of two."""
    bits = x.to(torch.float32).contiguous().view(torch.int32)
    exponent = (bits >> 23) & 0xFF
    fraction = bits & 0x7FFFFF
    if round_mode == "up":
        up = fraction > 0
    elif round_mode == "nearest":
        # Half way goes up for normal numbers, down for subnormal ones: to the even code, 0.
        up = torch.where(exponent > 0, fraction >= 0x400000, fraction > 0x400000)
    elif round_mode == "down":
        up = torch.zeros_like(fraction, dtype=torch.bool)
    else:
        raise ModelError(
            "unknown rounding of a cast to float8e8m0", got=round_mode, expected="up, down or nearest"
        )
    if saturate:
        up = up & (exponent < _E8M0_NAN - 1)
    code = torch.where(exponent == _E8M0_NAN, exponent, exponent + up)
    if saturate:  # infinity, but not NaN, becomes the largest power
        code = torch.where((exponent == _E8M0_NAN) & (fraction == 0), _E8M0_NAN - 1, code)
    elif round_mode == "nearest":
        code = torch.where(bits == 0, _E8M0_NAN, code)
    return code.clamp(max=_E8M0_NAN).to(torch.uint8).view(torch.float8_e8m0fnu)


def _from_e8m0(codes: torch.Tensor) -> torch.Tensor:
    exponent = codes.to(torch.int32)
    # Code 0 is 2**-127, which float32 has as a subnormal: the top bit of the fraction.
    bits = torch.where(exponent == 0, torch.full_like(exponent, 0x400000), exponent << 23)
    values = bits.view(torch.float32)
    return torch.where(exponent == _E8M0_NAN, torch.full_like(values, torch.nan), values)


def _to_narrow(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Integers keep their low bits; floats lose their fraction first."""
    low, high = INTEGER_RANGES[dtype]
    levels = high - low + 1
    whole = x.to(torch.int64)
    wrapped = torch.remainder(whole - low, levels) + low
    return wrapped.to(torch.int8 if low < 0 else torch.uint8).view(dtype)


def _to_uint64(x: torch.Tensor) -> torch.Tensor:
    """Floats of 2**63 and more do not fit int64, so that they go by halves."""
    limit = 2.0**63
    large = x >= limit
    low = torch.where(large, x.to(torch.float64) - limit, x.to(torch.float64)).to(torch.int64)
    return torch.where(large, low ^ -(2**63), low).view(torch.uint64)


OPERATORS = (
    Operator("Cast", 6, cast),
    Operator("CastLike", 15, cast_like),
)
