# SPDX-License-Identifier: Apache-2.0
"""Activations that every library computes inside the kernel of the node before them."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import is_operator, only_consumer

__all__ = ["FUSED_ACTIVATIONS", "fused_output"]

FUSED_ACTIVATIONS = ("Relu", "Clip")


def fused_output(node: ir.Node) -> ir.Value:
    """The value after the activations that the library computes inside the node's kernel."""
    value = node.outputs[0]
    while (follower := only_consumer(value)) is not None:
        is_same_graph = follower.graph is node.graph and follower.inputs[0] is value
        if not is_same_graph or not is_operator(follower, *FUSED_ACTIVATIONS):
            break
        value = follower.outputs[0]
    return value
