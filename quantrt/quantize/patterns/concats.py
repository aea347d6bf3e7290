# SPDX-License-Identifier: Apache-2.0
"""Concatenations along an axis that is not an image's channels.

Windows that are rolled over a map, rows of tokens side by side. OpenVINO 2026.4 joins zero points along the
same axis, and then takes them for one of each channel: a convolution or a product behind it computes in
floats, or the model is not compiled. With zero points of 0 there is nothing to join.
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import int_attribute, is_operator
from quantrt.quantize.target import Target

__all__ = ["joins_other_axes"]

CHANNELS = 1
IMAGE_RANK = 4
"""At least: behind images and channels are one axis or more of pixels."""

PRODUCTS = ("Gemm", "MatMul")


def joins_other_axes(node: ir.Node | None, target: Target) -> bool:
    """Whether a node concatenates along an axis that is not that of channels to all who read it.

    Not for targets that join codes along any axis alike.
    """
    rule = None if node is None or not is_operator(node, "Concat") else target.rule("Concat")
    if node is None or rule is None or not rule.symmetric:
        return False
    shape = node.outputs[0].shape
    axis = int_attribute(node, "axis", 0)
    is_image = shape is not None and len(shape) >= IMAGE_RANK and axis in (CHANNELS, CHANNELS - len(shape))
    return not is_image or any(is_operator(use.node, *PRODUCTS) for use in node.outputs[0].uses())
