# SPDX-License-Identifier: Apache-2.0
"""Squeeze-and-excite gates: global pool -> small layers -> sigmoid, multiplied back onto the map.

Their layers see a 1x1 map: 8 bits save nothing there, and the gate scales whole channels, so its rounding
error is not averaged out (Hu et al., "Squeeze-and-Excitation Networks", 2018, for the structure).
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator

__all__ = ["gate_nodes"]

MAX_DEPTH = 16
"""Longest gate walked: two layers with decomposed activations take about a dozen nodes."""


def gate_nodes(graph: ir.Graph) -> frozenset[str]:
    """Names of the nodes between a global pool (excluded) and the Mul that applies the gate (excluded)."""
    found: set[str] = set()
    for node in graph:
        if is_operator(node, "Mul"):
            for value, other in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
                chain = _chain_to_pool(value)
                # The pool must read the very map that is gated, else it is a classifier head.
                if chain and other is not None and chain[-1].inputs[0] is other:
                    found.update(member.name or "" for member in chain[:-1])
    return frozenset(found)


def _chain_to_pool(value: ir.Value | None) -> list[ir.Node]:
    """Producers of `value` back to its global pool, through one data input each; empty if there is none."""
    chain: list[ir.Node] = []
    pending = [value]
    while pending and len(chain) < MAX_DEPTH:
        current = pending.pop()
        node = current.producer() if current is not None else None
        if node is None:
            return []
        if node in chain:
            continue
        chain.append(node)
        if is_operator(node, "GlobalAveragePool", "ReduceMean"):
            return chain if not pending else []
        data = [v for v in node.inputs if v is not None and constant_of(v) is None]
        # x * sigmoid(x) inside the gate reads one value twice: both ways lead to the same producer.
        pending.extend(v for v in dict.fromkeys(data) if v not in pending)
    return []
