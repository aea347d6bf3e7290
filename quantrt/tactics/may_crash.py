# SPDX-License-Identifier: Apache-2.0
"""Models that a library is known to crash on while it compiles them: they are tried in another process first.

OpenVINO 2026.4 segfaults, in FP32 as in int8, where softmax attention is added to its residual without a
product between: P V goes, at most moved, into an Add with another activation. Trained transformers project it
first, so that their candidates cost no process.
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.quantize.attention import attention_products

__all__ = ["may_crash"]

MOVING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast")
MAX_MOVES = 8


def may_crash(library: str, graph: ir.Graph) -> bool:
    """Whether a model is of a kind that its library was seen to crash on."""
    if library != "openvino":
        return False
    products = attention_products(graph)
    return any(_is_summed(node) for node in graph if node.name in products and _is_weighted_sum(node))


def _is_weighted_sum(product: ir.Node) -> bool:
    """Whether a product of attention is the one behind the Softmax."""
    return any(_comes_from_softmax(value) for value in product.inputs)


def _comes_from_softmax(value: ir.Value | None) -> bool:
    for _ in range(MAX_MOVES):
        node = value.producer() if value is not None else None
        if node is None:
            return False
        if is_operator(node, "Softmax"):
            return True
        value = node.inputs[0] if is_operator(node, *MOVING) else None
    return False


def _is_summed(product: ir.Node) -> bool:
    """Whether an Add with another activation reads the product, directly or moved."""
    frontier = [product]
    for _ in range(MAX_MOVES):
        readers = [(node, use) for maker in frontier for value in maker.outputs for node, use in value.uses()]
        for node, use in readers:
            if is_operator(node, "Add") and len(node.inputs) == 2:
                other = node.inputs[1 - use]
                if other is not None and other.const_value is None:
                    return True
        frontier = [node for node, _ in readers if is_operator(node, *MOVING)]
    return False
