# SPDX-License-Identifier: Apache-2.0
"""GELU of dequantized codes, spelled with Erf, as one operator of ONNX Runtime's.

    codes -> DequantizeLinear -> x, erf(x / sqrt(2)) + 1 -> Mul, Mul by 0.5 -> ...
    codes -> DequantizeLinear -> Gelu -> ...

Of what is computed in floats it joins them itself, and here it does not see that both ends read the same x:
see quantrt.plan.onnxruntime.gates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator, only_consumer, take_place
from quantrt.plan.onnxruntime.gates import DOMAIN, JOINED_KEY, VERSION

__all__ = ["join_gelus"]

NEARLY = 1e-4
"""Of the constants: exporters write sqrt(2) with six digits or more."""


def join_gelus(graph: ir.Model) -> None:
    """Make one node of each such GELU, called as its last; in place."""
    for x, nodes in list(_gelus(graph.graph)):
        _join(graph, x, nodes)


def _gelus(graph: ir.Graph) -> Iterator[tuple[ir.Value, tuple[ir.Node, ...]]]:
    """Every GELU of what codes mean: its x, and its nodes in their order."""
    for erf in graph:
        scaling = erf.inputs[0].producer() if is_operator(erf, "Erf") and erf.inputs[0] is not None else None
        x = None if scaling is None else _scaled(scaling)
        if scaling is None or x is None or not is_operator(x.producer(), "DequantizeLinear"):
            continue
        added = only_consumer(erf.outputs[0])
        if added is None or not is_operator(added, "Add") or not _has_number(added, 1.0):
            continue
        products = _products(added, x)
        if products and only_consumer(scaling.outputs[0]) is erf:
            yield x, (scaling, erf, added, *products)


def _scaled(node: ir.Node) -> ir.Value | None:
    """The x of x / sqrt(2); None where a node computes something else."""
    if is_operator(node, "Div") and _is_number(node.inputs[1], math.sqrt(2.0)):
        return node.inputs[0]
    if is_operator(node, "Mul") and _has_number(node, math.sqrt(0.5)):
        return next(value for value in node.inputs if constant_of(value) is None)
    return None


def _products(added: ir.Node, x: ir.Value) -> tuple[ir.Node, ...]:
    """The two Muls that multiply a node's result, x and 0.5, in their order; empty where none do."""
    first = only_consumer(added.outputs[0])
    if first is None or not is_operator(first, "Mul"):
        return ()
    other = next((value for value in first.inputs if value is not added.outputs[0]), None)
    half = None if other is None else other.producer()
    if half is not None and is_operator(half, "Mul") and x in half.inputs and _has_number(half, 0.5):
        return (half, first) if only_consumer(half.outputs[0]) is first else ()
    last = only_consumer(first.outputs[0])
    if last is None or not is_operator(last, "Mul"):
        return ()
    is_gelu = (other is x and _has_number(last, 0.5)) or (_is_number(other, 0.5) and x in last.inputs)
    return (first, last) if is_gelu else ()


def _has_number(node: ir.Node, number: float) -> bool:
    return any(_is_number(value, number) for value in node.inputs)


def _is_number(value: ir.Value | None, number: float) -> bool:
    array = constant_of(value)
    return array is not None and array.size == 1 and bool(np.abs(array - number).max() < NEARLY)


def _join(graph: ir.Model, x: ir.Value, nodes: tuple[ir.Node, ...]) -> None:
    """Put one node in the place of the last, and take away the others."""
    *others, last = nodes
    made = ir.node("Gelu", [x], domain=DOMAIN, name=last.name)
    made.metadata_props[JOINED_KEY] = "\n".join(node.name or "" for node in others)
    graph.graph.opset_imports.setdefault(DOMAIN, VERSION)
    take_place(graph, last, [made], made.outputs[0])
    for node in reversed(others):
        graph.graph.remove(node, safe=True)
