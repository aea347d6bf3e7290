# SPDX-License-Identifier: Apache-2.0
"""What the kernel of a convolution computes behind it, and means over what it makes."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator

__all__ = ["before_activation", "is_mean_of_images"]

UNARY = (
    "Relu", "Clip", "LeakyRelu", "Elu", "Celu", "Selu", "Gelu", "HardSwish", "HardSigmoid", "Mish", "Sigmoid",
    "Softplus", "Softsign", "Tanh",
)  # fmt: skip
MAX_STEPS = 4
"""Of the way from a value to the factor that is computed from it: Mish takes two."""


def before_activation(value: ir.Value | None) -> ir.Value | None:
    """The value that an activation was computed from, x * sigmoid(x) and its like included; else itself."""
    while value is not None and (source := _activated(value.producer())) is not None:
        value = source
    return value


def _activated(node: ir.Node | None) -> ir.Value | None:
    """What a node is an activation of; None when it is none."""
    if node is None:
        return None
    if is_operator(node, *UNARY):
        return node.inputs[0]
    if not is_operator(node, "Mul"):
        return None
    first, second = node.inputs[:2]
    for value, factor in ((first, second), (second, first)):
        if _is_made_of(factor, value):
            return value
    return None


def _is_made_of(factor: ir.Value | None, value: ir.Value | None) -> bool:
    for _ in range(MAX_STEPS):
        node = factor.producer() if factor is not None else None
        if node is None or not is_operator(node, *UNARY):
            return False
        factor = node.inputs[0]
        if factor is value and value is not None:
            return True
    return False


def is_mean_of_images(node: ir.Node) -> bool:
    """Whether a node is a mean over all pixels: a GlobalAveragePool, or a ReduceMean over those axes."""
    if is_operator(node, "GlobalAveragePool"):
        return True
    if not is_operator(node, "ReduceMean") or int_attribute(node, "noop_with_empty_axes", 0):
        return False
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    attribute = node.attributes.get("axes")
    array = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    axes = (
        attribute.as_ints() if attribute is not None else () if array is None else array.reshape(-1).tolist()
    )
    if shape is None or len(shape) < 4:
        return False
    return sorted(int(axis) % len(shape) for axis in axes) == list(range(2, len(shape)))
