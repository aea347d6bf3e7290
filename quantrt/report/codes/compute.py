# SPDX-License-Identifier: Apache-2.0
"""One region in numpy: sums of codes exact, everything else in float64, then the codes.

    q = clip(rint(y / s) + z, qmin, qmax)

An engine computes y in float32, so that where y / s is next to the middle between two codes it may take the
other one. ONNX Runtime, of a convolution whose bias is in floats, rounds the bias to the grid of the sums
first, and adds it to them as an integer. Such codes are told apart from wrong ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from quantrt.errors import ModelError, first_line
from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.reference.exact_sums import conv_sums
from quantrt.reference.windows import windows_of
from quantrt.report.codes.find import CodeRegion

__all__ = ["Codes", "expected_codes"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Codes:
    """What a region makes.

    Attributes:
        codes: int64.
        exact: y / s + z before it is rounded and clipped, float64.
    """

    codes: Array
    exact: Array


@dataclass(frozen=True)
class _Integers:
    """Whole numbers and their scale: codes less their zero point."""

    values: Array
    scale: Array


def expected_codes(
    region: CodeRegion, given: Mapping[ir.Value, Array], opset: int, *, rounds_bias: bool = False
) -> Codes:
    """The codes of a region.

    Args:
        given: arrays of the values that the region reads: codes, and floats.
        rounds_bias: a convolution's bias is a whole number of the product of its scales.

    Raises:
        ModelError: a node cannot be computed; names it.
    """
    values: dict[ir.Value, Array] = {value: np.asarray(array) for value, array in given.items()}
    integers: dict[ir.Value, _Integers] = {}
    for node in region.nodes:
        try:
            _compute(node, values, integers, opset, rounds_bias=rounds_bias)
        except (ValueError, TypeError, IndexError, RuntimeError, NotImplementedError) as error:
            raise ModelError(
                f"the reference cannot compute '{node.name}' ({node.op_type})", got=first_line(error)
            ) from error
    quantize = region.quantize
    y = _array(quantize.inputs[0], values)
    scale, zero, kind = _grid(quantize, y.ndim)
    info = np.iinfo(kind)
    exact = y.astype(np.float64) / scale + zero
    codes = np.clip(np.rint(y.astype(np.float64) / scale) + zero, info.min, info.max)
    return Codes(codes.astype(np.int64), exact)


def _compute(
    node: ir.Node,
    values: dict[ir.Value, Array],
    integers: dict[ir.Value, _Integers],
    opset: int,
    *,
    rounds_bias: bool,
) -> None:
    if is_operator(node, "DequantizeLinear"):
        codes = _array(node.inputs[0], values)
        scale, zero, _ = _grid(node, codes.ndim)
        integers[node.outputs[0]] = _Integers(codes.astype(np.float64) - zero, scale)
        values[node.outputs[0]] = (codes.astype(np.float64) - zero) * scale
        return
    if is_operator(node, "QuantizeLinear"):
        x = _array(node.inputs[0], values)
        scale, zero, kind = _grid(node, x.ndim)
        info = np.iinfo(kind)
        values[node.outputs[0]] = np.clip(np.rint(x / scale) + zero, info.min, info.max).astype(kind)
        return
    sides = [integers.get(value) if value is not None else None for value in node.inputs[:2]]
    if is_operator(node, "Conv") and sides[0] is not None and sides[1] is not None:
        values[node.outputs[0]] = _conv(node, sides[0], sides[1], values, rounds_bias=rounds_bias)
        return
    inputs = [None if value is None else _array(value, values) for value in node.inputs]
    values.update(zip(node.outputs, _by_onnx(node, inputs, opset), strict=True))


def _conv(
    node: ir.Node, x: _Integers, w: _Integers, values: Mapping[ir.Value, Array], *, rounds_bias: bool
) -> Array:
    """Sums of codes, exact, then their scales and the bias."""
    rank = x.values.ndim - 2
    windows = windows_of(node, x.values.shape[2:], w.values.shape[2:])
    sums = conv_sums(x.values, w.values, windows, group=int_attribute(node, "group", 1))
    row = (1, -1, *[1] * rank)
    scale = x.scale * (w.scale.reshape(row) if w.scale.size > 1 else w.scale)
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None:
        return np.asarray(sums * scale)
    bias = _array(value, values).astype(np.float64).reshape(row)
    return np.asarray((sums + np.rint(bias / scale)) * scale if rounds_bias else sums * scale + bias)


def _by_onnx(node: ir.Node, inputs: Sequence[Array | None], opset: int) -> list[Array]:
    """A node by the evaluator of ONNX itself, floats in float64."""
    proto = ir.serde.serialize_node(node)
    evaluator = ReferenceEvaluator(proto, opsets={"": opset})
    wide = [
        array if array is None or array.dtype != np.float32 else array.astype(np.float64) for array in inputs
    ]
    feed = {
        value.name or "": array
        for value, array in zip(node.inputs, wide, strict=True)
        if value is not None and array is not None
    }
    return [np.asarray(array) for array in evaluator.run(None, feed)]


def _array(value: ir.Value | None, values: Mapping[ir.Value, Array]) -> Array:
    if value is None:
        raise ValueError("an input is absent")
    if value in values:
        return values[value]
    array = constant_of(value)
    if array is None:
        raise ValueError(f"'{value.name}' is not known")
    return array


def _grid(node: ir.Node, rank: int) -> tuple[Array, Array, np.dtype[Any]]:
    """Scale and zero point in float64, in a shape that broadcasts, and the type of the codes.

    Raises:
        ModelError: they are computed, or in blocks.
    """
    scale = constant_of(node.inputs[1])
    zero = constant_of(node.inputs[2]) if len(node.inputs) > 2 else None
    if scale is None or int_attribute(node, "block_size", 0):
        raise ModelError(f"the grid of '{node.name}' is no constant of numbers or rows")
    codes = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    kind = zero.dtype if zero is not None else np.dtype(np.uint8)
    if zero is None and codes is not None and codes.dtype is not None:
        kind = codes.dtype.numpy()
    if kind.kind not in "iu":
        raise ModelError(f"the codes of '{node.name}' are no integers", got=str(kind))
    axis = int_attribute(node, "axis", 1) % max(rank, 1)
    shape = [-1] + [1] * (rank - 1 - axis) if scale.size > 1 else []
    points = np.zeros(scale.shape) if zero is None else zero.astype(np.float64)
    return scale.astype(np.float64).reshape(shape), points.reshape(shape), np.dtype(kind)
