# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of quantization, written once.

    q = clip(rint(x / scale) + zero_point, qmin, qmax)          # rint: half to even
    x ~ (q - zero_point) * scale

FP8 E4M3 has no zero point, and rounds to the nearest number that it has, halfway to the even mantissa:

    q = e4m3(clip(x / scale, -448, 448))                        # NaN stays NaN

A zero range gives scale 1. Scales are float32, and everything is computed in float32 as the libraries do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from quantrt.dtypes import INT8, INT32, DType
from quantrt.errors import ModelError
from quantrt.quantize.scales.float8 import to_e4m3
from quantrt.quantize.scales.kept_scales import KeptScales
from quantrt.quantize.scales.weight_scale import BLOCK_ELEMENTS, least_error_scale, row_amax, usable_scale

__all__ = [
    "QParams",
    "QuantizedTensor",
    "bias_qparams",
    "choose_qparams",
    "dequantize",
    "given_qparams",
    "quantize_array",
    "quantize_weight",
]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class QParams:
    """How one tensor maps onto codes.

    Attributes:
        scale: float32, shape [] or [C], all > 0.
        zero_point: int32, shaped like scale.
        dtype: the stored type.
        axis: the axis of C; None per tensor.
        qmin, qmax: the codes in use, inside the type's range.
    """

    scale: Array
    zero_point: Array
    dtype: DType
    axis: int | None
    qmin: int
    qmax: int

    def broadcast(self, array: Array, rank: int) -> Array:
        """Scale or zero_point shaped to broadcast against a tensor of `rank` axes."""
        if self.axis is None:
            return array
        shape = [1] * rank
        shape[self.axis] = -1
        return array.reshape(shape)


@dataclass(frozen=True)
class QuantizedTensor:
    """Codes and what they mean."""

    codes: Array
    qparams: QParams

    def dequantize(self) -> Array:
        """The float32 values the codes stand for."""
        return dequantize(self.codes, self.qparams)


def choose_qparams(
    lo: Array,
    hi: Array,
    *,
    dtype: DType,
    symmetric: bool,
    axis: int | None = None,
    qmin: int,
    qmax: int,
    zero_point_unit: int = 1,
) -> QParams:
    """Scale and zero point that map the range [lo, hi] onto the codes qmin..qmax.

    Symmetric: zero_point 0 for signed codes; scale = max(hi / qmax, lo / qmin), so that neither side is
    clipped. Asymmetric: scale = (hi - lo) / (qmax - qmin) with zero exactly representable; where zero points
    are multiples of more than 1, the scale that does not clip the larger side: the smaller one may lose half
    as many codes.

    Args:
        lo, hi: observed range, f32, shape [] or [C]; widened to contain 0.
        zero_point_unit: what an asymmetric zero point is a multiple of; qmin is one.

    Returns:
        scale > 0; a zero range gives scale 1.

    Raises:
        ModelError: a bound is NaN or infinite.
    """
    lo = np.minimum(np.asarray(lo, np.float64), 0.0)
    hi = np.maximum(np.asarray(hi, np.float64), 0.0)
    if not (np.all(np.isfinite(lo)) and np.all(np.isfinite(hi))):
        raise ModelError("cannot quantize to a range that is not finite", got=f"[{np.min(lo)}, {np.max(hi)}]")
    if symmetric:
        scale = hi / qmax if qmin == 0 else np.maximum(hi / qmax, lo / qmin)
        zero_point = np.zeros(scale.shape, np.int32)
    else:
        scale = (hi - lo) / (qmax - qmin)
        safe = np.where(scale > 0, scale, 1.0)
        zero_point = np.clip(np.rint(qmin - lo / safe), qmin, qmax).astype(np.int32)
        if zero_point_unit > 1:
            unit = zero_point_unit
            nearest = unit * np.rint(zero_point / unit).astype(np.int32)
            zero_point = np.minimum(nearest, qmax // unit * unit)
            scale = np.where(hi >= -lo, hi / (qmax - zero_point), lo / np.minimum(qmin - zero_point, -1))
    return QParams(usable_scale(scale), zero_point, dtype, axis, qmin, qmax)


def given_qparams(scale: float, *, dtype: DType = INT8, qmin: int = -128, qmax: int = 127) -> QParams:
    """The symmetric grid on a scale from elsewhere, bit for bit.

    In a type whose codes begin at qmin = 0 the zero point is 128: code - zero_point is the int8 code.
    """
    zero_point = np.asarray(0 if dtype.is_float else qmin + 128, np.int32)
    return QParams(np.asarray(scale, np.float32), zero_point, dtype, None, qmin, qmax)


def quantize_array(x: Array, qparams: QParams) -> Array:
    """Codes of `x` in qparams.dtype: clip(rint(x / scale) + zero_point, qmin, qmax), or as FP8 rounds."""
    scale = qparams.broadcast(qparams.scale, x.ndim)
    zero_point = qparams.broadcast(qparams.zero_point, x.ndim)
    if x.size <= BLOCK_ELEMENTS:
        return _codes(x, scale, zero_point, qparams)
    codes = np.empty(x.shape, qparams.dtype.name)
    count = max(1, BLOCK_ELEMENTS * len(x) // x.size)
    for first in range(0, len(x), count):
        part = slice(first, first + count)
        own = part if qparams.axis == 0 else ...
        codes[part] = _codes(x[part], scale[own], zero_point[own], qparams)
    return codes


def _codes(x: Array, scale: Array, zero_point: Array, qparams: QParams) -> Array:
    """Codes of a part, on the scales and zero points that belong to it."""
    with np.errstate(over="ignore"):  # a quotient beyond float32 saturates like any other
        steps = np.asarray(x.astype(np.float32, copy=False) / scale)
    if qparams.dtype.is_float:
        return to_e4m3(np.clip(steps, qparams.qmin, qparams.qmax, out=steps))
    q = np.rint(steps, out=steps)
    if zero_point.any():
        q = np.asarray(q.astype(np.float64) + zero_point)
    return np.clip(q, qparams.qmin, qparams.qmax, out=q).astype(qparams.dtype.name)


def dequantize(codes: Array, qparams: QParams) -> Array:
    """Values of `codes`: (q - zero_point) * scale, float32."""
    scale = qparams.broadcast(qparams.scale, codes.ndim)
    zero_point = qparams.broadcast(qparams.zero_point, codes.ndim)
    if zero_point.any():
        codes = codes.astype(np.int64) - zero_point
    return np.asarray(codes.astype(np.float32) * scale, np.float32)


def quantize_weight(
    weight: Array,
    *,
    axis: int | None,
    dtype: DType = INT8,
    qmax: int = 127,
    min_scale: Array | None = None,
    kept: KeptScales | None = None,
) -> QuantizedTensor:
    """Symmetric codes of a weight, -qmax..qmax, per channel of `axis` or per tensor.

    Each channel's scale is amax / qmax; of integers the best of a few smaller ones by squared rounding and
    clipping error of that channel. FP8's error is in proportion to each value: clipping gains nothing.

    Args:
        weight: float, any shape; C channels along `axis`.
        dtype: of the codes.
        qmax: 127, or 63 where 8-bit products could saturate 16-bit sums; 448 of FP8.
        min_scale: float [C], or [] per tensor: no scale is below it; the scale of a channel of zeros.
        kept: what earlier searches of integers found.

    Raises:
        ModelError: the weight has a NaN or an infinite value.
    """
    rows = (
        weight.reshape(1, -1)
        if axis is None
        else np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)
    )
    if dtype.is_float:
        scale = row_amax(rows) / np.float32(qmax)
    else:
        find = partial(least_error_scale, rows, qmax)
        scale = find() if kept is None else kept.of(weight, axis, qmax, find)
    if axis is None:
        scale = scale[0]
    if min_scale is not None:
        scale = np.maximum(scale, np.asarray(min_scale, np.float32))
    qparams = QParams(usable_scale(scale), np.zeros(scale.shape, np.int32), dtype, axis, -qmax, qmax)
    return QuantizedTensor(quantize_array(weight, qparams), qparams)


def bias_qparams(input_qparams: QParams, weight_qparams: QParams) -> QParams:
    """The int32 grid of a bias: scale = input scale * weight scale, zero point 0."""
    scale = usable_scale(input_qparams.scale * weight_qparams.scale)
    axis = None if scale.ndim == 0 else 0
    return QParams(scale, np.zeros(scale.shape, np.int32), INT32, axis, INT32.qmin or 0, INT32.qmax or 0)
