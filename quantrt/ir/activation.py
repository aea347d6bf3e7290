# SPDX-License-Identifier: Apache-2.0
"""Activations: operators of one value, and products of a value with what such operators make of it."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import is_operator

__all__ = ["activation_of"]

UNARY = (
    "Relu", "Clip", "LeakyRelu", "Elu", "Celu", "Selu", "Gelu", "HardSwish", "HardSigmoid", "Mish", "Sigmoid",
    "Softplus", "Softsign", "Tanh",
)  # fmt: skip
MAX_STEPS = 4
"""Of the way from a value to the factor that is computed from it: Mish takes two."""


def activation_of(node: ir.Node | None) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
    """The value that a node is an activation of, and the nodes that compute it in their order, itself last.

    x * sigmoid(x) and its like are activations of x; None for a node that is none.
    """
    if node is None or not is_operator(node, *UNARY, "Mul"):
        return None
    if not is_operator(node, "Mul"):
        value = node.inputs[0]
        return None if value is None else (value, (node,))
    first, second = node.inputs[:2]
    for value, factor in ((first, second), (second, first)):
        between = _nodes_between(value, factor)
        if value is not None and between:
            return value, (*between, node)
    return None


def _nodes_between(value: ir.Value | None, factor: ir.Value | None) -> tuple[ir.Node, ...]:
    """The operators of one value that make `factor` from `value`, in their order; none where others do."""
    found: list[ir.Node] = []
    for _ in range(MAX_STEPS):
        node = factor.producer() if factor is not None else None
        if node is None or not is_operator(node, *UNARY):
            return ()
        found.append(node)
        factor = node.inputs[0]
        if factor is value and value is not None:
            return tuple(reversed(found))
    return ()
