# SPDX-License-Identifier: Apache-2.0
"""The grids that QuantizeLinear and DequantizeLinear nodes are written with, integers re-centred to int8.

x ~ (q - z) * s     with uint8 codes     = ((q - 128) - (z - 128)) * s     with int8 codes

FP8 E4M3 has no zero points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.dtypes import FP8, INT8, DType, dtype
from quantrt.ir.edit import constant_of, int_attribute
from quantrt.quantize.scales.qparams import (
    QParams,
    QuantizedTensor,
    dequantize,
    given_qparams,
    quantize_array,
)

__all__ = ["CodeGrid", "constant_params", "grid_of", "recentred"]

Array = np.ndarray[Any, Any]

UINT8_CENTRE = 128


@dataclass(frozen=True)
class CodeGrid:
    """The grid of one activation.

    Attributes:
        scale: a float32 number.
        zero_point: -128..127, of int8 codes; 0 of FP8.
        dtype: of the codes.
    """

    scale: float
    zero_point: int
    dtype: DType = INT8

    @property
    def lowest(self) -> int:
        """The least code."""
        return self.dtype.qmin or 0

    @property
    def highest(self) -> int:
        """The largest code."""
        return self.dtype.qmax or 0

    def keeps_bound(self, bound: Array | None, *, is_upper: bool) -> bool:
        """Whether min(rounded x, bound) is min(x, bound) rounded, of an upper bound; else the same of max.

        Args:
            bound: a number; None for one that is not known.
        """
        if bound is None or bound.size != 1 or self.dtype.is_float:
            return False
        qparams, number = self.qparams(), np.asarray(bound, np.float32).reshape(())
        rounded = dequantize(quantize_array(number, qparams), qparams)
        end = dequantize(np.asarray(self.highest if is_upper else self.lowest), qparams)
        is_beyond = number >= end if is_upper else number <= end
        return bool(is_beyond or rounded == number)

    def qparams(self) -> QParams:
        """Its parameters."""
        grid = given_qparams(self.scale, dtype=self.dtype, qmin=self.lowest, qmax=self.highest)
        return replace(grid, zero_point=np.asarray(self.zero_point, np.int32))


def grid_of(node: ir.Node) -> CodeGrid | str:
    """The grid of a QuantizeLinear or DequantizeLinear of an activation, or why kernels have none for it."""
    codes = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    scale, zero = constant_of(_input(node, 1)), constant_of(_input(node, 2))
    if scale is None or (zero is None and _input(node, 2) is not None):
        return "its scale or zero point is computed"
    if scale.size != 1 or int_attribute(node, "block_size", 0):
        return "an activation with a scale per channel or block"
    if scale.dtype != np.float32:
        return f"its scale is of type {scale.dtype}"
    kind = codes.dtype if codes is not None else None
    if kind == ir.DataType.FLOAT8E4M3FN:
        return _fp8_grid(node, scale, zero)
    if kind not in (ir.DataType.INT8, ir.DataType.UINT8):
        return f"its codes are of type {'unknown' if kind is None else kind.name.lower()}"
    centre = UINT8_CENTRE if kind == ir.DataType.UINT8 else 0
    return CodeGrid(float(scale.reshape(())), (0 if zero is None else int(zero.reshape(()))) - centre)


def _fp8_grid(node: ir.Node, scale: Array, zero: Array | None) -> CodeGrid | str:
    if zero is not None and float(zero.reshape(())) != 0.0:
        return "FP8 codes with a zero point"
    if not int_attribute(node, "saturate", 1):
        return "what is beyond its codes is to become NaN"
    return CodeGrid(float(scale.reshape(())), 0, FP8)


def constant_params(node: ir.Node, shape: tuple[int, ...]) -> QParams | str:
    """The parameters with which a node quantizes or dequantizes a constant of this shape."""
    scale, zero = constant_of(_input(node, 1)), constant_of(_input(node, 2))
    if scale is None or (zero is None and _input(node, 2) is not None):
        return "its scale or zero point is computed"
    kind = _code_type(node)
    if kind is None or scale.dtype != np.float32 or int_attribute(node, "block_size", 0):
        return "codes or scales of a type or shape without an 8-bit kernel"
    points = np.zeros(scale.shape, np.int32) if zero is None else zero.astype(np.int32)
    if scale.size == 1:
        scale, points, axis = scale.reshape(()), points.reshape(()), None
    else:
        axis = int_attribute(node, "axis", 1) % len(shape) if shape else None
    if axis is not None and scale.shape != (shape[axis],):
        return "a scale that does not fit its axis"
    return QParams(scale, points, kind, axis, kind.qmin or 0, kind.qmax or 0)


def recentred(tensor: QuantizedTensor) -> QuantizedTensor | None:
    """The same values as int8 codes with zero point 0, FP8 codes as they are; None where they do not fit."""
    params = tensor.qparams
    if params.dtype == FP8:
        return None if params.zero_point.any() else tensor
    codes = tensor.codes.astype(np.int64) - params.broadcast(params.zero_point, tensor.codes.ndim)
    lo, hi = int(codes.min(initial=0)), int(codes.max(initial=0))
    if lo < -128 or hi > 127:
        return None
    zero = np.zeros(params.scale.shape, np.int32)
    grid = QParams(params.scale, zero, INT8, params.axis, -127 if lo >= -127 else -128, 127)
    return QuantizedTensor(codes.astype(np.int8), grid)


def _code_type(node: ir.Node) -> DType | None:
    """The type of a node's codes; None for what no kernel here multiplies."""
    zero = _input(node, 2)
    if node.op_type == "DequantizeLinear":
        tensor = node.inputs[0].const_value if node.inputs[0] is not None else None
        kind = None if tensor is None else tensor.dtype
    elif zero is not None and zero.const_value is not None:
        kind = zero.const_value.dtype
    else:
        kind = ir.DataType(int_attribute(node, "output_dtype", ir.DataType.UINT8.value))
    names = ("INT8", "UINT8", "INT16", "UINT16", "INT32")
    if kind == ir.DataType.FLOAT8E4M3FN:
        return FP8
    return dtype(kind.name.lower()) if kind is not None and kind.name in names else None


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None
