# SPDX-License-Identifier: Apache-2.0
"""Which operands of a product can be 8-bit, and along which axis a weight has a scale per channel."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import float_attribute, int_attribute
from quantrt.quantize.target import OpRule

__all__ = ["is_per_image", "is_plain_gemm", "weight_axis"]


def weight_axis(node: ir.Node, rule: OpRule) -> int | None:
    """The output-channel axis of a product's weight; None for one scale per tensor."""
    if node.op_type == "Gemm":
        return 0 if int_attribute(node, "transB", 0) else 1
    weight = node.inputs[rule.weight or 0]
    if node.op_type == "MatMul" and weight is not None and weight.const_value is not None:
        # Batched weights: ONNX Runtime refuses a scale per column, OpenVINO computes with wrong ones.
        return 1 if len(weight.const_value.shape) == 2 else None
    return rule.weight_axis


def is_plain_gemm(node: ir.Node) -> bool:
    """Whether a Gemm is x @ w + bias, w transposed or not."""
    scales = (float_attribute(node, "alpha", 1.0), float_attribute(node, "beta", 1.0))
    return scales == (1.0, 1.0) and not int_attribute(node, "transA", 0)


def is_per_image(value: ir.Value | None) -> bool:
    """Whether a value has one element for every channel of an image: no skip connection of images."""
    shape = None if value is None else value.shape
    return shape is not None and len(shape) > 2 and all(size == 1 for size in shape.dims[2:])
