# SPDX-License-Identifier: Apache-2.0
"""Nodes whose inputs are all constant are replaced by their value."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, register_constant
from quantrt.ir.shapes import infer_shapes
from quantrt.ir.sources import add_sources, sources_of
from quantrt.model.passes.fold.evaluate_node import evaluate_node
from quantrt.model.passes.fold.known_sizes import known_sizes

__all__ = ["fold_constants"]

MAX_GROWTH_BYTES = 1 << 20
"""A folded value may exceed the constants it replaces by this much: Expand and the like stay nodes."""

_MAX_ROUNDS = 8  # each round's constants can make more shapes known; two or three are usual

# Scales and zero points are somebody's intent, random numbers are drawn anew at each run.
_NEVER_FOLDED = (
    "Bernoulli",
    "DequantizeLinear",
    "Dropout",
    "DynamicQuantizeLinear",
    "Multinomial",
    "QuantizeLinear",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)


def fold_constants(graph: ir.Model) -> int:
    """Replace nodes of the main graph that compute a constant by that constant; how many.

    Shape and Size of a value whose shape is known count as constant, and so does picking such sizes out
    of a shape that is partly unknown. Control flow, custom operators, QuantizeLinear and DequantizeLinear
    are never folded, nor what would grow the model by more than 1 MiB. Nodes that read a folded value
    record the nodes it came from.
    """
    total = 0
    # Values are followed only when all that is constant is folded, so that their sizes are known before.
    for follow_values in (False, True):
        for _ in range(_MAX_ROUNDS):
            infer_shapes(graph, follow_values=follow_values)
            count = sum(_fold(graph, node) for node in list(graph.graph))
            total += count
            if not count:
                break
    return total


def _fold(graph: ir.Model, node: ir.Node) -> bool:
    if any(value.is_graph_output() for value in node.outputs) or not any(
        value.uses() for value in node.outputs
    ):
        return False
    arrays = _value_of(graph, node)
    if arrays is None:
        return False
    for output, array in zip(node.outputs, arrays, strict=True):
        if array is None:
            continue
        for consumer, _ in output.uses():
            add_sources(consumer, sources_of(node))
        name = output.name or node.op_type
        output.name = None  # frees the name
        output.replace_all_uses_with(register_constant(graph, name, ir.Tensor(array)))
    graph.graph.remove(node, safe=True)
    return True


def _value_of(graph: ir.Model, node: ir.Node) -> list[np.ndarray | None] | None:
    """What each output of `node` always is; None when it is not constant. An unused output may be None."""
    sizes = known_sizes(node)
    if sizes is not None:
        return [sizes]
    if node.domain not in ("", "ai.onnx") or node.op_type in _NEVER_FOLDED or not node.inputs:
        return None
    inputs = {value.name or "": constant_of(value) for value in node.inputs if value is not None}
    if not inputs or any(array is None for array in inputs.values()):
        return None
    known = {name: array for name, array in inputs.items() if array is not None}
    freed_bytes = sum(
        array.nbytes
        for value in node.inputs
        if value is not None and len(value.uses()) == 1 and (array := known.get(value.name or "")) is not None
    )
    return evaluate_node(graph, node, known, max_bytes=freed_bytes + MAX_GROWTH_BYTES)
