# SPDX-License-Identifier: Apache-2.0
"""MatMul and Gemm with a constant weight."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import constant_of, float_attribute, int_attribute, is_operator
from quantrt.regions.anchors.anchor import FLOATS, Anchor, is_float, is_per_channel
from quantrt.regions.expression import Expression
from quantrt.regions.expressions.builder import ExpressionBuilder, Register
from quantrt.regions.expressions.express import read
from quantrt.regions.facts.facts import Facts
from quantrt.regions.region import Gemm

__all__ = ["find_gemm"]


def find_gemm(position: int, facts: Facts) -> Anchor | str | None:
    """The anchor of a node; why there is none; None when it is neither MatMul nor Gemm."""
    node = facts.nodes[position]
    if not is_operator(node, "MatMul", "Gemm") or len(node.inputs) < 2:
        return None
    x, weight = node.inputs[0], node.inputs[1]
    if x is None or weight is None or not is_float(x, facts):
        return "its first factor is not a float activation"
    shape = _weight_shape(weight)
    if shape is None:
        return "its second factor is not a constant matrix of floats"
    if is_operator(node, "Gemm") and int_attribute(node, "transA", 0):
        return "its first factor is transposed"
    is_transposed = is_operator(node, "Gemm") and bool(int_attribute(node, "transB", 0))
    channels = shape[0 if is_transposed else 1]
    reason = _why_no_bias(node, facts, channels)
    if reason is not None:
        return reason

    def formula(epilogue: Expression) -> Gemm:
        name = node.name or ""
        return Gemm((name, 0), (name, 1), weight.name or "", is_transposed, epilogue)

    return Anchor(
        position, x, node.outputs[0], channels, -1, lambda b: (_start(b, node),), formula, takes_rows=True
    )


def _weight_shape(weight: ir.Value) -> tuple[int, ...] | None:
    tensor = weight.const_value
    if constant_of(weight) is None or tensor is None or weight.dtype not in FLOATS:
        return None
    shape = tuple(tensor.shape.numpy())
    return shape if len(shape) == 2 and 0 not in shape else None


def _why_no_bias(node: ir.Node, facts: Facts, channels: int) -> str | None:
    """Why Gemm's third input cannot be part of the epilogue."""
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None or float_attribute(node, "beta", 1.0) == 0:
        return None
    array = constant_of(bias)
    if array is not None:
        if array.size == 1 or is_per_channel(array.shape, channels, -1):
            return None
        return "its constant bias is not one number per column"
    if not is_float(bias, facts):
        return "its bias is not a float activation"
    return None if facts.sizes.same(bias, node.outputs[0]) else "its bias has another shape than its result"


def _start(builder: ExpressionBuilder, node: ir.Node) -> Register:
    """The accumulator times alpha, and beta times the bias added."""
    result = builder.operand("accumulator")
    if not is_operator(node, "Gemm"):
        return result
    alpha, beta = float_attribute(node, "alpha", 1.0), float_attribute(node, "beta", 1.0)
    if alpha != 1.0:
        result = builder.op("mul", builder.const(alpha), result)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None or beta == 0:
        return result
    addend = read(bias, (node.name or "", 2), builder, {})
    if beta != 1.0:
        addend = builder.op("mul", builder.const(beta), addend)
    return builder.op("add", result, addend)
