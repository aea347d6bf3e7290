# SPDX-License-Identifier: Apache-2.0
"""Nodes that move elements without changing them."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.regions.facts.facts import Facts

__all__ = ["is_view"]

VIEWS = (
    "Expand",
    "Flatten",
    "Identity",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
)


def is_view(node: ir.Node, facts: Facts) -> bool:
    """Whether a node is one of VIEWS of an activation, its other inputs being constants or host values."""
    if not is_operator(node, *VIEWS) or not node.inputs or not facts.is_activation(node.inputs[0]):
        return False
    if not isinstance(node.inputs[0].type if node.inputs[0] is not None else None, ir.TensorType):
        return False
    return not any(facts.is_activation(value) for value in node.inputs[1:])
