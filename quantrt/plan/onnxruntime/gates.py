# SPDX-License-Identifier: Apache-2.0
"""x * sigmoid(x) of dequantized codes as one operator of ONNX Runtime's.

    codes -> DequantizeLinear -> x, Sigmoid(x) -> Mul -> ...
    codes -> DequantizeLinear -> QuickGelu(alpha = 1) -> ...

It joins the two itself where x is computed in floats. A DequantizeLinear it gives to each of its readers, one
of its own, for the sake of kernels on codes, and so does not see that both read the same; a run dequantizes
twice then, and goes over the image four times in place of two. Both forms make the same floats.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from quantrt.ir.edit import is_operator, only_consumer, take_place

__all__ = ["JOINED_KEY", "join_gates"]

DOMAIN, VERSION = "com.microsoft", 1
JOINED_KEY = "quantrt.joined"
"""Of a node's metadata: names of nodes that are computed in it, one a line."""


def join_gates(graph: ir.Model) -> None:
    """Make one node of each such gate, called as its Mul; in place."""
    for sigmoid, product in list(_gates(graph.graph)):
        _join(graph, sigmoid, product)


def _gates(graph: ir.Graph) -> Iterator[tuple[ir.Node, ir.Node]]:
    """Every Sigmoid of what codes mean, with the Mul that alone reads it, beside what it reads."""
    for node in graph:
        x = node.inputs[0] if is_operator(node, "Sigmoid") else None
        if x is None or x.dtype not in (None, ir.DataType.FLOAT):
            continue
        if not is_operator(x.producer(), "DequantizeLinear"):
            continue
        product = only_consumer(node.outputs[0])
        if product is not None and is_operator(product, "Mul") and x in product.inputs:
            yield node, product


def _join(graph: ir.Model, sigmoid: ir.Node, product: ir.Node) -> None:
    made = ir.node("QuickGelu", [sigmoid.inputs[0]], {"alpha": 1.0}, domain=DOMAIN, name=product.name)
    made.metadata_props[JOINED_KEY] = sigmoid.name or ""
    graph.graph.opset_imports.setdefault(DOMAIN, VERSION)
    take_place(graph, product, [made], made.outputs[0])
    graph.graph.remove(sigmoid, safe=True)
