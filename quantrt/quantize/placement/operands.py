# SPDX-License-Identifier: Apache-2.0
"""Which operands of a product can be 8-bit, and along which axis a weight has a scale per channel."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import float_attribute, int_attribute, is_operator
from quantrt.quantize.target import OpRule, Target

__all__ = [
    "is_activation",
    "is_float",
    "is_per_image",
    "is_plain_gemm",
    "is_spread",
    "rule_of",
    "weight_axis",
]


def rule_of(node: ir.Node, target: Target) -> OpRule | None:
    """The rule by which a target quantizes a node; None where it has none for it."""
    rule = target.rule(node.op_type) if is_operator(node, node.op_type) else None
    return None if rule is None or (rule.only_nearest and not _is_nearest(node)) else rule


def is_float(value: ir.Value) -> bool:
    """Whether a value is of type float32."""
    tensor = value.const_value
    return (tensor.dtype if tensor is not None else value.dtype) == ir.DataType.FLOAT


def is_activation(value: ir.Value | None) -> bool:
    """Whether a value is of type float32, and no constant."""
    return value is not None and value.const_value is None and is_float(value)


def _is_nearest(node: ir.Node) -> bool:
    """Whether a Resize picks elements of its input, and makes none."""
    mode, crop = node.attributes.get("mode"), node.attributes.get("coordinate_transformation_mode")
    is_cropped = crop is not None and crop.as_string() == "tf_crop_and_resize"
    return (mode is None or mode.as_string() == "nearest") and not is_cropped


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


def is_spread(node: ir.Node) -> bool:
    """Whether a ConvTranspose makes a block of every pixel: its kernel is as large as its stride."""
    weight = node.inputs[1]
    if weight is None or weight.const_value is None or int_attribute(node, "group", 1) != 1:
        return False
    strides = node.attributes.get("strides")
    kernel = tuple(weight.const_value.shape.numpy())[2:]
    cuts = [node.attributes.get(name) for name in ("pads", "output_padding", "output_shape")]
    is_plain = not any(any(attribute.as_ints()) for attribute in cuts if attribute is not None)
    mode, dilations = node.attributes.get("auto_pad"), node.attributes.get("dilations")
    is_plain &= mode is None or mode.as_string() in ("NOTSET", "VALID")
    is_plain &= dilations is None or set(dilations.as_ints()) == {1}
    return is_plain and strides is not None and tuple(strides.as_ints()) == kernel


def is_per_image(value: ir.Value | None) -> bool:
    """Whether a value has one element for every channel of an image: no skip connection of images."""
    shape = None if value is None else value.shape
    return shape is not None and len(shape) > 2 and all(size == 1 for size in shape.dims[2:])
