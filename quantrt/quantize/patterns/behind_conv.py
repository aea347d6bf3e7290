# SPDX-License-Identifier: Apache-2.0
"""What the kernel of a convolution computes behind it, and means over what it makes."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.activation import activation_of
from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.quantize.patterns.roles import ACTIVATIONS, ARITHMETIC, data_inputs

__all__ = ["before_activation", "is_inside_activation", "is_mean_of_images"]

ELEMENTWISE = (*ARITHMETIC, *ACTIVATIONS, "Cos", "Exp", "Sin")

MAX_NODES = 12
"""Between what an activation is of and a sum inside it: GELU spelled with tanh has three."""


def before_activation(value: ir.Value | None) -> ir.Value | None:
    """The value that an activation was computed from, x * sigmoid(x) and its like included; else itself."""
    while value is not None and (found := activation_of(value.producer())) is not None:
        value = found[0]
    return value


def is_inside_activation(total: ir.Node) -> bool:
    """Whether one term of a sum is computed from the other, element by element, as in GELU: x + a x^3."""
    first, second = total.inputs[:2]
    return _is_made_of(first, second) or _is_made_of(second, first)


def _is_made_of(value: ir.Value | None, source: ir.Value | None) -> bool:
    pending, seen = [value], set[ir.Value | None]()
    while pending:
        current = pending.pop()
        if current is source or current in seen:
            continue
        seen.add(current)
        node = current.producer() if current is not None else None
        if node is None or not is_operator(node, *ELEMENTWISE) or len(seen) > MAX_NODES:
            return False
        pending += data_inputs(node)
    return True


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
