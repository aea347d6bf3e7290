# SPDX-License-Identifier: Apache-2.0
"""ONNX operators that reduce or normalize over the last axis, or exchange neighbours, as instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, float_attribute, int_attribute
from quantrt.regions.expressions.builder import ExpressionBuilder, Register
from quantrt.regions.expressions.from_onnx import STORED_TYPES
from quantrt.regions.facts.facts import Facts

__all__ = ["MAX_ROW", "emit_row_operator", "is_row_operator", "why_not_row_operator"]

Emit = Callable[[ExpressionBuilder, ir.Node, Sequence[Register]], Register]

MAX_ROW = 16384
"""Elements of a row that one program of a kernel holds in registers."""

_NORM_EPSILON = 1e-5  # of ONNX LayerNormalization and RMSNormalization
_INPUT_COUNT = {"LayerNormalization": 3, "RMSNormalization": 2, "SimplifiedLayerNormalization": 2}


def is_row_operator(node: ir.Node) -> bool:
    """Whether a node is of an operator that this file knows."""
    is_known = node.domain in ("", "ai.onnx") and node.op_type in _EMITTERS
    return is_known and (node.op_type != "Gather" or _swaps_pairs(node))


def why_not_row_operator(node: ir.Node, facts: Facts) -> str | None:
    """Why a row operator cannot be instructions of an expression; None when it can."""
    if any(value.name and facts.is_read(value) for value in node.outputs[1:]):
        return "it has a second output"
    source = node.inputs[0] if node.inputs else None
    if source is None or not facts.is_activation(source):
        return "it reads a constant or a host value"
    operands = [value for value in node.inputs[: _INPUT_COUNT.get(node.op_type, 1)] if value is not None]
    if any(value.dtype not in STORED_TYPES[:3] or value.name in facts.host for value in operands):
        return "its inputs are not floats on the device"
    shape = facts.sizes.shape(source)
    if not shape:
        return "the rank of its input is not known"
    axes = _axes(node, facts, len(shape))
    if axes is None or axes != {len(shape) - 1}:
        return "it does not reduce the last axis alone"
    if node.op_type.startswith("Reduce") and not int_attribute(node, "keepdims", 1):
        return "it drops the axis that it reduces"
    if not isinstance(shape[-1], int):
        return "the length of its rows is not known"
    if shape[-1] > MAX_ROW:
        return f"its rows have {shape[-1]} elements, more than {MAX_ROW}"
    return None


def _swaps_pairs(node: ir.Node) -> bool:
    """Whether a Gather along the last axis takes elements 1, 0, 3, 2, ..., all of them."""
    index = constant_of(node.inputs[1]) if len(node.inputs) == 2 else None
    if index is None or index.ndim != 1 or index.size % 2 or int_attribute(node, "axis", 0) != -1:
        return False
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    is_whole = shape is not None and len(shape) > 0 and shape[-1] == index.size
    return is_whole and np.array_equal(index, np.arange(index.size) ^ 1)


def emit_row_operator(builder: ExpressionBuilder, node: ir.Node, args: Sequence[Register]) -> Register:
    """The register of a node's result; `args` are those of its inputs."""
    return _EMITTERS[node.op_type](builder, node, args)


def _axes(node: ir.Node, facts: Facts, rank: int) -> set[int] | None:
    """The axes that a node works on, counted from 0; None where they are not constant."""
    if not node.op_type.startswith("Reduce"):
        default = 1 if node.op_type in ("Softmax", "LogSoftmax") and facts.opset < 13 else -1
        return {int_attribute(node, "axis", default) % rank}
    attribute = node.attributes.get("axes")
    if attribute is not None:
        return {axis % rank for axis in attribute.as_ints()}
    given = node.inputs[1] if len(node.inputs) > 1 else None
    array = constant_of(given)
    if given is not None and array is None:
        return None
    if array is None or array.size == 0:
        return set() if int_attribute(node, "noop_with_empty_axes", 0) else set(range(rank))
    return {int(axis) % rank for axis in array.reshape(-1)}


def _in_rows(op: str) -> Emit:
    return lambda b, node, args: b.op(op, args[0])


def _reduce_l1(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register]) -> Register:
    return b.op("row_sum", b.op("abs", args[0]))


def _reduce_squares(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register]) -> Register:
    return b.op("row_sum", b.op("mul", args[0], args[0]))


def _reduce_l2(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register]) -> Register:
    return b.op("sqrt", _reduce_squares(b, node, args))


def _softmax(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register]) -> Register:
    power = b.op("exp", b.op("sub", args[0], b.op("row_max", args[0])))
    return b.op("div", power, b.op("row_sum", power))


def _log_softmax(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register]) -> Register:
    below = b.op("sub", args[0], b.op("row_max", args[0]))
    return b.op("sub", below, b.op("log", b.op("row_sum", b.op("exp", below))))


def _layer_norm(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register]) -> Register:
    """The mean first, then the variance of what is left: no difference of large squares."""
    centred = b.op("sub", args[0], b.op("row_mean", args[0]))
    return _scaled_to_one(b, node, centred, args[1:])


def _rms_norm(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register]) -> Register:
    return _scaled_to_one(b, node, args[0], args[1:])


def _scaled_to_one(b: ExpressionBuilder, node: ir.Node, x: Register, affine: Sequence[Register]) -> Register:
    epsilon = b.const(float_attribute(node, "epsilon", _NORM_EPSILON))
    power = b.op("add", b.op("row_mean", b.op("mul", x, x)), epsilon)
    result = b.op("mul", x, b.op("rsqrt", power))
    for op, register in zip(("mul", "add"), affine, strict=False):
        result = b.op(op, result, register)
    return result


def _lp_norm(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register]) -> Register:
    """A row of zeros stays zeros, as ONNX 22 says."""
    norm = (_reduce_l1 if int_attribute(node, "p", 2) == 1 else _reduce_l2)(b, node, args)
    return b.op("div", args[0], b.op("where", b.op("eq", norm, b.const(0.0)), b.const(1.0), norm))


_EMITTERS: Mapping[str, Emit] = {
    "Gather": _in_rows("swap_pairs"),
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _log_softmax,
    "LpNormalization": _lp_norm,
    "RMSNormalization": _rms_norm,
    "ReduceL1": _reduce_l1,
    "ReduceL2": _reduce_l2,
    "ReduceMax": _in_rows("row_max"),
    "ReduceMean": _in_rows("row_mean"),
    "ReduceMin": _in_rows("row_min"),
    "ReduceSum": _in_rows("row_sum"),
    "ReduceSumSquare": _reduce_squares,
    "SimplifiedLayerNormalization": _rms_norm,
    "Softmax": _softmax,
}
