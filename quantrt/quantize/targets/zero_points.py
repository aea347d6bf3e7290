# SPDX-License-Identifier: Apache-2.0
"""Which operators read activations with a zero point, on targets where not all do."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import int_attribute
from quantrt.quantize.target import OpRule

__all__ = ["ZERO_POINT_UNIT", "takes_zero_point", "why_no_zero_point"]

ZERO_POINT_UNIT = 2
"""What zero points on a GPU are multiples of: even ones can be added before codes are rounded."""

FEW_CHANNELS = 4
"""Of an image: it is copied with its padding before it is convolved."""

IMAGE_AXES = 2


def takes_zero_point(node: ir.Node, rule: OpRule) -> bool:
    """Whether an operator reads codes whose code of 0 is not 0 for nothing.

    Padding is of that code. Where elements are loaded one by one that costs nothing: by channel, and of few
    channels. Where copies of them run ahead of the products, as in all other convolutions with padding, they
    leave zeros there.
    """
    if rule.passes:
        return True
    is_free = node.op_type != "Conv" or _groups(node) > 1 or not _is_padded(node)
    return why_no_zero_point(node, rule) is None and (is_free or _channels_of_group(node) <= FEW_CHANNELS)


def why_no_zero_point(node: ir.Node, rule: OpRule) -> str | None:
    """Why no kernel of an operator reads codes whose code of 0 is not 0; None where one does."""
    if not rule.zero_point:
        return f"no kernel of {node.op_type} reads codes with a zero point"
    if rule.weight is not None and not _has_weight(node, rule.weight):
        return "its input has a zero point, and its weight is computed"
    if node.op_type == "Conv":
        return _why_no_conv(node)
    is_rounded_up = int_attribute(node, "ceil_mode", 0) and int_attribute(node, "count_include_pad", 0)
    if node.op_type == "AveragePool" and is_rounded_up:
        return "its input has a zero point, its padding counts, and windows end behind it"
    return None


def _has_weight(node: ir.Node, index: int) -> bool:
    """Whether an input is a constant, whose sums are known."""
    weight = node.inputs[index] if len(node.inputs) > index else None
    return weight is not None and weight.const_value is not None


def _why_no_conv(node: ir.Node) -> str | None:
    channels, per_group, *kernel = _weight_shape(node)
    if len(kernel) > IMAGE_AXES:
        return f"no kernel of {len(kernel)} spatial axes reads codes with a zero point"
    if _groups(node) > 1 and (per_group, channels) != (1, _groups(node)):
        return f"no kernel of groups of {per_group} channels reads codes with a zero point"
    return None


def _groups(node: ir.Node) -> int:
    return int_attribute(node, "group", 1)


def _channels_of_group(node: ir.Node) -> int:
    return _weight_shape(node)[1]


def _weight_shape(node: ir.Node) -> list[int]:
    """Of a convolution whose weight is a constant."""
    weight = node.inputs[1]
    assert weight is not None and weight.const_value is not None
    return [int(size) for size in weight.const_value.shape.numpy()]


def _is_padded(node: ir.Node) -> bool:
    """Whether a convolution may read beyond its input."""
    mode, pads = node.attributes.get("auto_pad"), node.attributes.get("pads")
    if mode is not None and mode.as_string() not in ("NOTSET", "VALID"):
        return True
    return pads is not None and any(pads.as_ints())
