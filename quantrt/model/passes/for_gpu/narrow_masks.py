# SPDX-License-Identifier: Apache-2.0
"""What is repeated only to be repeated again by its readers is left narrow: masks that all queries share.

    Expand(x, sizes) | And(x, trues) | Or(x, falses)   ->  x

where x is 1 wide along the axes that grow, and nodes element by element read the result up to where it meets
a tensor that has these axes. Exports of transformers add masks to the scores that are repeated for every
query: S times the bytes of what the tokenizer says, read once for each head.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator
from quantrt.ir.sources import add_sources, sources_of
from quantrt.model.passes.remove_unused import remove_unused

__all__ = ["narrow_masks"]

_NEUTRAL = {"And": True, "Or": False}
_ELEMENTWISE = ("Add", "And", "Cast", "Div", "Equal", "Max", "Min", "Mul", "Not", "Or", "Sub", "Where")

Axes = frozenset[int]
"""Counted from the last, -1, that broadcasting starts at."""


def narrow_masks(graph: ir.Model) -> int:
    """Rewrite the main graph; how many nodes went."""
    count = 0
    for node in list(graph.graph):
        source = _repeated(node)
        grown = frozenset() if source is None else _grown(source, node.outputs[0])
        narrow = _narrow_values(graph, node, grown) if grown else {}
        if source is None or not narrow:
            continue
        for value, axes in narrow.items():
            value.shape = _narrowed(value.shape, axes)
        node.outputs[0].replace_all_uses_with(source)
        producer = source.producer()
        if producer is not None and producer.graph is graph.graph:
            add_sources(producer, sources_of(node))
        graph.graph.remove(node, safe=True)
        count += 1
    if count:
        remove_unused(graph)
    return count


def _repeated(node: ir.Node) -> ir.Value | None:
    """The input whose elements the node's result repeats, and nothing else; None where there is none."""
    source: ir.Value | None = None
    if is_operator(node, "Expand"):
        source = node.inputs[0]
    for value, other in (node.inputs, node.inputs[::-1]) if is_operator(node, *_NEUTRAL) else ():
        constant = constant_of(other)
        if constant is not None and (constant == _NEUTRAL[node.op_type]).all():
            source = value
    if source is None or source.shape is None or node.outputs[0].shape is None:
        return None
    return source if len(source.shape) == len(node.outputs[0].shape) else None


def _grown(source: ir.Value, result: ir.Value) -> Axes:
    """The axes that the result repeats along; none where one is not known to stay or to be 1."""
    sizes = list(zip(_dims(source), _dims(result), strict=True))
    if any(before not in (1, after) for before, after in sizes):
        return frozenset()
    return frozenset(axis - len(sizes) for axis, (before, after) in enumerate(sizes) if before != after)


def _narrow_values(graph: ir.Model, node: ir.Node, grown: Axes) -> dict[ir.Value, Axes]:
    """The node's result and what is computed of it alone, with the axes that shrink; {} where one may not."""
    found = {node.outputs[0]: grown}
    for reader in itertools.dropwhile(lambda other: other is not node, graph.graph):
        shrinking = frozenset[int]().union(
            *(found.get(value, ()) for value in reader.inputs if value is not None)
        )
        if not shrinking:
            continue
        if not is_operator(reader, *_ELEMENTWISE):
            return {}
        result = reader.outputs[0]
        left = {
            axis for axis in shrinking if not any(_is_wide(v, axis, result, found) for v in reader.inputs)
        }
        if left:
            found[result] = frozenset(left)
    uses = [use for value in found for use in value.uses()]
    is_seen_outside = any(value.is_graph_output() for value in found)
    return {} if is_seen_outside or any(use.node.graph is not graph.graph for use in uses) else found


def _is_wide(value: ir.Value | None, axis: int, result: ir.Value, found: Mapping[ir.Value, Axes]) -> bool:
    """Whether a reader's input makes its result as wide as it is along an axis, and does not shrink."""
    if value is None or value.shape is None or result.shape is None or len(value.shape) < -axis:
        return False
    if axis in found.get(value, ()):
        return False
    size = value.shape[axis]
    return size != 1 and size == result.shape[axis]


def _narrowed(shape: ir.Shape | None, axes: Axes) -> ir.Shape:
    dims = [] if shape is None else list(shape.dims)
    return ir.Shape([1 if axis - len(dims) in axes else dim for axis, dim in enumerate(dims)])


def _dims(value: ir.Value) -> list[int | ir.SymbolicDim]:
    return [] if value.shape is None else list(value.shape.dims)
