# SPDX-License-Identifier: Apache-2.0
"""Scales and zero points of QuantizeLinear and DequantizeLinear are as ONNX allows, or the node is named.

A runtime would refuse them much later, or compute NaN.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.errors import ModelError
from quantrt.ir.edit import constant_of, int_attribute, is_operator

__all__ = ["check_pairs"]

PAIRS = ("QuantizeLinear", "DequantizeLinear")

CODE_TYPES = tuple(
    getattr(ir.DataType, name)
    for name in (
        "INT2 UINT2 INT4 UINT4 INT8 UINT8 INT16 UINT16 INT32 FLOAT4E2M1 FLOAT8E4M3FN FLOAT8E4M3FNUZ "
        "FLOAT8E5M2 FLOAT8E5M2FNUZ"
    ).split()
    if hasattr(ir.DataType, name)
)


def check_pairs(graph: ir.Model) -> None:
    """Check every such node of a graph and its subgraphs, as far as its numbers are constant.

    Raises:
        ModelError: a scale is missing, no number or of a shape that does not fit, or a zero point of another
            type than the codes; names the node.
    """
    for node in graph.graph.all_nodes():
        if is_operator(node, *PAIRS):
            _check(node)


def _check(node: ir.Node) -> None:
    scale = node.inputs[1] if len(node.inputs) > 1 else None
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    x = node.inputs[0] if node.inputs else None
    if x is None or scale is None:
        raise _error(node, "it has no scale" if x is not None else "it has no input", None, "input 1")
    codes = x if is_operator(node, "DequantizeLinear") else None
    kind = None if codes is None else codes.dtype
    if kind is not None and kind not in CODE_TYPES:
        raise _error(node, "its input are no codes", kind.name.lower(), "integers, or floats of 8 or 4 bits")
    if zero is not None and zero.dtype is not None:
        _check_zero_type(node, zero.dtype, kind)
    values = constant_of(scale)
    if values is None:
        return
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise _error(
            node, "its scale is no number", f"{numbers[~np.isfinite(numbers)].flat[0]}", "finite numbers"
        )
    if is_operator(node, "QuantizeLinear") and not numbers.all():
        raise _error(node, "it divides by a scale of 0", None, "scales other than 0")
    _check_shape(node, x, tuple(values.shape))
    points = constant_of(zero)
    if points is not None and points.size != values.size:
        raise _error(
            node, "its scale and zero point differ in shape", f"{list(points.shape)}", f"{list(values.shape)}"
        )


def _check_zero_type(node: ir.Node, zero: ir.DataType, codes: ir.DataType | None) -> None:
    if zero not in CODE_TYPES or (codes is None and zero == ir.DataType.INT32):
        raise _error(
            node, "its zero point is of no type for codes", zero.name.lower(), "int8, uint8 or the like"
        )
    if codes is not None and zero != codes:
        raise _error(node, "its zero point is not of the codes' type", zero.name.lower(), codes.name.lower())


def _check_shape(node: ir.Node, x: ir.Value, shape: tuple[int, ...]) -> None:
    """Whether a scale is one number, a row that fits its axis, or a number per block."""
    block = int_attribute(node, "block_size", 0)
    if np.prod(shape, dtype=np.int64) == 1 and not block:
        return
    own = x.const_value.shape if x.const_value is not None else x.shape
    rank = None if own is None else len(own)
    axis = int_attribute(node, "axis", 1)
    if rank is not None and not -rank <= axis < rank:
        raise _error(
            node, f"its input has no axis {axis}", f"rank {rank}", f"an axis from {-rank} to {rank - 1}"
        )
    if block:
        if rank is not None and len(shape) != rank:
            raise _error(node, "its scales are in no blocks", f"shape {list(shape)}", f"rank {rank}")
        return
    size = None if own is None else own[axis]
    if len(shape) != 1 or (isinstance(size, int) and shape[0] != size):
        want = f"a number, or {size} in a row" if isinstance(size, int) else "a number, or a row of them"
        raise _error(node, f"its scales do not fit axis {axis}", f"shape {list(shape)}", want)


def _error(node: ir.Node, what: str, got: str | None, expected: str) -> ModelError:
    return ModelError(f"cannot use node '{node.name}' ({node.op_type}): {what}", got=got, expected=expected)
