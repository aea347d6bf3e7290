# SPDX-License-Identifier: Apache-2.0
"""Conv with a constant weight."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.regions.anchors.anchor import FLOATS, Anchor, is_float
from quantrt.regions.expression import Expression
from quantrt.regions.expressions.builder import ExpressionBuilder, Register
from quantrt.regions.expressions.express import read
from quantrt.regions.facts.facts import Facts
from quantrt.regions.region import Conv

__all__ = ["find_conv", "ints_of", "pads_of", "started"]

_MAX_SPATIAL = 3


def find_conv(position: int, facts: Facts) -> Anchor | str | None:
    """The anchor of a node; why there is none; None when it is no Conv."""
    node = facts.nodes[position]
    if not is_operator(node, "Conv") or len(node.inputs) < 2:
        return None
    x, weight = node.inputs[0], node.inputs[1]
    if x is None or weight is None or not is_float(x, facts):
        return "its input is not a float activation"
    tensor = weight.const_value
    if constant_of(weight) is None or tensor is None or weight.dtype not in FLOATS:
        return "its weight is not a constant of floats"
    shape = tuple(tensor.shape.numpy())
    if not 3 <= len(shape) <= 2 + _MAX_SPATIAL or 0 in shape:
        return f"its weight has {len(shape)} axes"
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and constant_of(bias) is None:
        return "its bias is not a constant"
    strides, dilations = ints_of(node, "strides", len(shape) - 2), ints_of(node, "dilations", len(shape) - 2)
    pads = pads_of(node, facts, shape[2:], strides, dilations)
    if pads is None:
        return "its padding depends on a size that is not known"

    def formula(epilogue: Expression) -> Conv:
        name = node.name or ""
        groups = int_attribute(node, "group", 1)
        return Conv((name, 0), (name, 1), weight.name or "", strides, dilations, pads, groups, epilogue)

    axis = 1 - len(shape)
    return Anchor(position, x, node.outputs[0], shape[0], axis, lambda b: (started(b, node),), formula)


def started(builder: ExpressionBuilder, node: ir.Node) -> Register:
    """The accumulator, plus the constant bias if there is one."""
    result = builder.operand("accumulator")
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return result
    return builder.op("add", result, read(bias, (node.name or "", 2), builder, {}))


def ints_of(node: ir.Node, name: str, count: int) -> tuple[int, ...]:
    """An attribute of one number per spatial axis, which are 1 where it is absent."""
    attribute = node.attributes.get(name)
    return (1,) * count if attribute is None else tuple(attribute.as_ints())


def pads_of(
    node: ir.Node, facts: Facts, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...] | None:
    """Begins of every spatial axis, then ends; None where they follow from a size that is not known."""
    mode = node.attributes.get("auto_pad")
    kind = "NOTSET" if mode is None else mode.as_string()
    if kind == "VALID":
        return (0,) * (2 * len(kernel))
    if kind == "NOTSET":
        attribute = node.attributes.get("pads")
        return (0,) * (2 * len(kernel)) if attribute is None else tuple(attribute.as_ints())
    shape = facts.sizes.shape(node.inputs[0])
    if shape is None:
        return None
    begins, ends = [], []
    for size, width, stride, dilation in zip(shape[2:], kernel, strides, dilations, strict=True):
        if not isinstance(size, int):
            return None
        total = max(0, (-(-size // stride) - 1) * stride + dilation * (width - 1) + 1 - size)
        less, more = total // 2, total - total // 2
        begins.append(less if kind == "SAME_UPPER" else more)
        ends.append(more if kind == "SAME_UPPER" else less)
    return (*begins, *ends)
