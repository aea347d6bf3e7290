# SPDX-License-Identifier: Apache-2.0
"""The two products of softmax attention: Q K^T before the Softmax and P V after it.

Softmax bounds P to [0, 1] and normalized Q and K keep their product in range. Softmax-free (linear)
attention multiplies unnormalized sums instead, whose ranges spread over orders of magnitude, and divides by
one of them: in 8 bits it loses nearly all accuracy (Shi et al., "Trio-ViT", 2024, section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import onnx_ir as ir

from quantrt.ir.edit import is_operator

__all__ = ["attention_products", "transposed_attention"]

BETWEEN = ("Mul", "Div", "Add", "Where", "Reshape", "Transpose", "Cast", "Dropout", "Identity", "Clip")
"""Scaling, masking and moving that exporters put between a product and its Softmax."""

MOVES = ("Transpose", "Reshape")
"""What puts the heads of attention's output side by side."""

MAX_STEPS = 8


def attention_products(graph: ir.Graph) -> frozenset[str]:
    """Names of the MatMul nodes that feed a Softmax or are fed by one."""
    found: set[str] = set()
    for node in graph:
        if is_operator(node, "Softmax"):
            for step in (_producers, _consumers):
                found.update(_first_products(node, step))
    return frozenset(found)


def transposed_attention(node: ir.Node, products: Collection[str]) -> ir.Value | None:
    """What one of the products makes, where a node moves it and it is transposed up to there; else None."""
    is_transposed = False
    for _ in range(MAX_STEPS):
        value = node.inputs[0] if is_operator(node, *MOVES) else None
        producer = value.producer() if value is not None else None
        if producer is None:
            return None
        is_transposed = is_transposed or is_operator(node, "Transpose")
        if producer.name in products:
            return value if is_transposed else None
        node = producer
    return None


def _first_products(start: ir.Node, step: Callable[[ir.Node], Iterator[ir.Node]]) -> Iterator[str]:
    """The nearest MatMul nodes in one direction, through BETWEEN only."""
    frontier = list(step(start))
    for _ in range(MAX_STEPS):
        following: list[ir.Node] = []
        for node in frontier:
            if is_operator(node, "MatMul"):
                yield node.name or ""
            elif is_operator(node, *BETWEEN):
                following.extend(step(node))
        frontier = following


def _producers(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.inputs:
        producer = value.producer() if value is not None else None
        if producer is not None:
            yield producer


def _consumers(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.outputs:
        yield from (consumer for consumer, _ in value.uses())
