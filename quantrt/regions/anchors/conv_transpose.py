# SPDX-License-Identifier: Apache-2.0
"""ConvTranspose with a constant weight."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.regions.anchors.anchor import FLOATS, Anchor, is_float
from quantrt.regions.anchors.conv import ints_of, started
from quantrt.regions.expression import Expression
from quantrt.regions.facts.facts import Facts
from quantrt.regions.region import ConvTranspose

__all__ = ["find_conv_transpose"]

_MAX_SPATIAL = 3


def find_conv_transpose(position: int, facts: Facts) -> Anchor | str | None:
    """The anchor of a node; why there is none; None when it is no ConvTranspose."""
    node = facts.nodes[position]
    if not is_operator(node, "ConvTranspose") or len(node.inputs) < 2:
        return None
    x, weight = node.inputs[0], node.inputs[1]
    reason = _why_not(node, facts)
    if x is None or weight is None or weight.const_value is None or reason is not None:
        return reason or "its weight is not a constant of floats"
    shape = tuple(weight.const_value.shape.numpy())
    rank = len(shape) - 2
    groups = int_attribute(node, "group", 1)

    def formula(epilogue: Expression) -> ConvTranspose:
        name = node.name or ""
        return ConvTranspose(
            x=(name, 0),
            w=(name, 1),
            weight=weight.name or "",
            kernel=shape[2:],
            strides=ints_of(node, "strides", rank),
            dilations=ints_of(node, "dilations", rank),
            pads=_zeros_or(node, "pads", 2 * rank),
            output_padding=_zeros_or(node, "output_padding", rank),
            groups=groups,
            epilogue=epilogue,
        )

    channels = shape[1] * groups
    return Anchor(
        position, x, node.outputs[0], channels, 1 - len(shape), lambda b: (started(b, node),), formula
    )


def _why_not(node: ir.Node, facts: Facts) -> str | None:
    weight = node.inputs[1]
    tensor = None if weight is None else weight.const_value
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if not is_float(node.inputs[0], facts):
        return "its input is not a float activation"
    if weight is None or constant_of(weight) is None or tensor is None or weight.dtype not in FLOATS:
        return "its weight is not a constant of floats"
    shape = tuple(tensor.shape.numpy())
    if not 3 <= len(shape) <= 2 + _MAX_SPATIAL or 0 in shape:
        return f"its weight has {len(shape)} axes"
    if bias is not None and constant_of(bias) is None:
        return "its bias is not a constant"
    mode = node.attributes.get("auto_pad")
    is_given = mode is None or mode.as_string() in ("NOTSET", "VALID")
    if not is_given or "output_shape" in node.attributes:
        return "its padding follows from the size of its result"
    if min((0, *_zeros_or(node, "pads", 2))) < 0:
        return "its padding is negative"
    return None


def _zeros_or(node: ir.Node, name: str, count: int) -> tuple[int, ...]:
    """An attribute of `count` numbers, which are 0 where it is absent."""
    attribute = node.attributes.get(name)
    return (0,) * count if attribute is None else tuple(attribute.as_ints())
