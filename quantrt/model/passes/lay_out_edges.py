# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs in another order of axes: Transpose at the edges of the graph, Reshape for vectors.

x [N,H,W,C]      -> Transpose -> x.linear [N,C,H,W] -> ...  -> y.linear -> Transpose -> y [N,H,W,C]
x [N,C/v,H,W,v]  -> Transpose -> [N,C/v,v,H,W] -> Reshape -> x.linear -> ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from quantrt.errors import UsageError
from quantrt.ir.edit import add_constant, free_name, prepend
from quantrt.ir.layout import Layout

__all__ = ["lay_out_edges"]

INNER = ".linear"
"""Behind the name of an input or output: the value in the model's own order."""

Dims = Sequence[int | ir.SymbolicDim]


def lay_out_edges(graph: ir.Model, layouts: Mapping[str, Layout]) -> int:
    """Change `graph` in place; how many inputs and outputs changed.

    Names stay those of what a caller passes and gets.

    Args:
        layouts: by input or output; names that are neither are ignored.

    Raises:
        UsageError: an input is handed out as it is.
    """
    count = 0
    for number, value in enumerate(list(graph.graph.inputs)):
        if (layout := layouts.get(value.name or "")) is not None:
            _lay_out_input(graph, number, value, layout)
            count += 1
    for number, value in enumerate(list(graph.graph.outputs)):
        if (layout := layouts.get(value.name or "")) is not None:
            _lay_out_output(graph, number, value, layout)
            count += 1
    return count


def _lay_out_input(graph: ir.Model, number: int, value: ir.Value, layout: Layout) -> None:
    if value.is_graph_output():
        raise UsageError(f"input '{value.name}' cannot be {layout.name}: it is an output too")
    name, dims = value.name or "", list(value.shape.dims) if value.shape is not None else []
    value.name = None
    source = ir.Value(name=name, type=value.type, shape=ir.Shape(layout.memory_shape(dims)))
    graph.graph.inputs[number] = source
    order = _node(graph, "Transpose", [source], f"{name}.from_{layout.name}", _split_dims(dims, layout))
    order.attributes["perm"] = ir.AttrInt64s("perm", layout.to_model)
    nodes = [order]
    if layout.vector is not None:
        target = _target(graph, f"{name}.channels", [0, *dims[1:]])
        nodes.append(_node(graph, "Reshape", [order.outputs[0], target], f"{name}.join", dims))
    inner = nodes[-1].outputs[0]
    value.replace_all_uses_with(inner)
    inner.name = free_name(graph, f"{name}{INNER}")
    prepend(graph, nodes)


def _lay_out_output(graph: ir.Model, number: int, value: ir.Value, layout: Layout) -> None:
    if value.is_graph_input() or value.is_initializer():
        raise UsageError(f"output '{value.name}' cannot be {layout.name}: nothing computes it")
    name, dims = value.name or "", list(value.shape.dims) if value.shape is not None else []
    value.name = free_name(graph, f"{name}{INNER}")
    inner, nodes = value, []
    if layout.vector is not None:
        split = _split_dims(dims, layout)
        target = _target(graph, f"{name}.vectors", [0, *split[1:]])
        nodes.append(_node(graph, "Reshape", [value, target], f"{name}.split", split))
        inner = nodes[0].outputs[0]
        inner.name = free_name(graph, f"{name}.split")
    nodes.append(_node(graph, "Transpose", [inner], f"{name}.to_{layout.name}", layout.memory_shape(dims)))
    nodes[-1].attributes["perm"] = ir.AttrInt64s("perm", layout.to_memory)
    graph.graph.extend(nodes)
    nodes[-1].outputs[0].name = name
    graph.graph.outputs[number] = nodes[-1].outputs[0]


def _node(graph: ir.Model, op_type: str, inputs: list[ir.Value], name: str, dims: Dims) -> ir.Node:
    """A node with one result, of the type of its first input."""
    node = ir.node(op_type, inputs, name=free_name(graph, name))
    node.outputs[0].type, node.outputs[0].shape = inputs[0].type, ir.Shape(list(dims))
    node.outputs[0].name = free_name(graph, f"{name}.result")
    return node


def _target(graph: ir.Model, name: str, dims: Dims) -> ir.Value:
    """The sizes that a Reshape reads; a free one is what remains."""
    sizes = [dim if isinstance(dim, int) else -1 for dim in dims]
    return add_constant(graph, free_name(graph, name), np.array(sizes, np.int64))


def _split_dims(dims: Dims, layout: Layout) -> Dims:
    """The model's sizes, the channels in two axes where there are vectors."""
    if layout.vector is None:
        return dims
    batch, groups, *rest, vector = layout.memory_shape(dims)
    return [batch, groups, vector, *rest]
