# SPDX-License-Identifier: Apache-2.0
"""Which operators read activations with a zero point, on targets where not all do."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import int_attribute
from quantrt.quantize.target import OpRule

__all__ = ["ZERO_POINT_UNIT", "takes_zero_point"]

ZERO_POINT_UNIT = 2
"""What zero points on a GPU are multiples of: even ones can be added before codes are rounded."""

FEW_CHANNELS = 4
"""Of an image: it is copied with its padding before it is convolved."""

IMAGE_AXES = 2


def takes_zero_point(node: ir.Node, rule: OpRule) -> bool:
    """Whether the kernels of an operator read codes whose code of 0 is not 0.

    Padding is of that code. Where elements are loaded one by one that costs nothing: by channel, and of few
    channels. Where copies of them run ahead of the products, as in all other convolutions with padding, they
    leave zeros there.
    """
    if rule.passes:
        return True
    if not rule.zero_point or (rule.weight is not None and not _has_weight(node, rule.weight)):
        return False
    if node.op_type == "Conv":
        return _conv_takes_zero_point(node)
    is_rounded_up = int_attribute(node, "ceil_mode", 0) and int_attribute(node, "count_include_pad", 0)
    return node.op_type != "AveragePool" or not is_rounded_up


def _has_weight(node: ir.Node, index: int) -> bool:
    """Whether an input is a constant, whose sums are known."""
    weight = node.inputs[index] if len(node.inputs) > index else None
    return weight is not None and weight.const_value is not None


def _conv_takes_zero_point(node: ir.Node) -> bool:
    weight = node.inputs[1]
    assert weight is not None and weight.const_value is not None
    channels, per_group, *kernel = (int(size) for size in weight.const_value.shape.numpy())
    group = int_attribute(node, "group", 1)
    if len(kernel) > IMAGE_AXES:
        return False
    if group > 1:
        return per_group == 1 and channels == group
    return per_group <= FEW_CHANNELS or not _is_padded(node)


def _is_padded(node: ir.Node) -> bool:
    """Whether a convolution may read beyond its input."""
    mode, pads = node.attributes.get("auto_pad"), node.attributes.get("pads")
    if mode is not None and mode.as_string() not in ("NOTSET", "VALID"):
        return True
    return pads is not None and any(pads.as_ints())
