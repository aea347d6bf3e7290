# SPDX-License-Identifier: Apache-2.0
"""ONNX's Attention on three axes, [B, S, heads * D], becomes one on four, between views.

Attention<q_num_heads>(q, k, v)  ->  Reshape, Transpose of each -> Attention -> Transpose -> Reshape
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, int_attribute, is_operator
from quantrt.ir.sources import SOURCES_KEY, sources_of

__all__ = ["split_attention_heads"]

_APART = (0, 2, 1, 3)


def split_attention_heads(graph: ir.Model) -> int:
    """Rewrite those of the main graph that have no caches and one output; how many."""
    count = 0
    for node in list(graph.graph):
        heads = int_attribute(node, "q_num_heads", 0), int_attribute(node, "kv_num_heads", 0)
        if is_operator(node, "Attention") and all(heads) and _is_plain(node):
            _replace(graph, node, (heads[0], heads[1], heads[1]))
            count += 1
    return count


def _is_plain(node: ir.Node) -> bool:
    """Whether q, k and v have three axes, and nothing but the result is read of it."""
    has_more = any(value is not None for value in node.inputs[4:])
    is_read = any(value.uses() or value.is_graph_output() for value in node.outputs[1:])
    shapes = [None if value is None else value.shape for value in node.inputs[:3]]
    return not has_more and not is_read and all(shape is not None and len(shape) == 3 for shape in shapes)


def _replace(graph: ir.Model, node: ir.Node, heads: Sequence[int]) -> None:
    result, made = node.outputs[0], []
    apart = []
    for place, (value, count) in enumerate(zip(node.inputs[:3], heads, strict=True)):
        views = _heads_apart(graph, node, value, count, "qkv"[place])
        made += views
        apart.append(views[-1].outputs[0])
    attention = ir.Node("", "Attention", [*apart, *node.inputs[3:4]], name=node.name)
    for name, attribute in node.attributes.items():
        if name not in ("q_num_heads", "kv_num_heads"):
            attention.attributes[name] = attribute
    turned = ir.Node("", "Transpose", [attention.outputs[0]], name=f"{node.name}.turned")
    turned.attributes["perm"] = ir.AttrInt64s("perm", _APART)
    target = add_constant(graph, f"{node.name}.width", np.array([0, 0, -1], np.int64))
    joined = ir.Node("", "Reshape", [turned.outputs[0], target], name=f"{node.name}.joined")
    made += [attention, turned, joined]
    _describe(node, apart, attention, turned, joined)
    for new in made:
        new.metadata_props[SOURCES_KEY] = "\n".join(sources_of(node))
    graph.graph.insert_before(node, made)
    result_name = result.name
    result.replace_all_uses_with(joined.outputs[0], replace_graph_outputs=True)
    graph.graph.remove(node, safe=True)
    result.name, joined.outputs[0].name = None, result_name


def _heads_apart(
    graph: ir.Model, node: ir.Node, value: ir.Value | None, heads: int, which: str
) -> list[ir.Node]:
    """[B, S, heads * D] -> [B, heads, S, D]."""
    target = add_constant(graph, f"{node.name}.{which}_heads", np.array([0, 0, heads, -1], np.int64))
    reshape = ir.Node("", "Reshape", [value, target], name=f"{node.name}.{which}_apart")
    turned = ir.Node("", "Transpose", [reshape.outputs[0]], name=f"{node.name}.{which}_turned")
    views = [reshape, turned]
    turned.attributes["perm"] = ir.AttrInt64s("perm", _APART)
    B, S, width = value.shape.dims if value is not None and value.shape is not None else (None, None, None)
    size = width // heads if isinstance(width, int) else None
    for view, dims in zip(views, ((B, S, heads, size), (B, heads, S, size)), strict=True):
        view.outputs[0].name = f"{view.name}.value"
        view.outputs[0].type = None if value is None else value.type
        view.outputs[0].shape = ir.Shape(dims)
    return views


def _describe(
    node: ir.Node, apart: Sequence[ir.Value], attention: ir.Node, turned: ir.Node, joined: ir.Node
) -> None:
    """Names, types and shapes of what is made from the attention on."""
    q, v = (
        list(value.shape.dims) if value.shape is not None else [None] * 4 for value in (apart[0], apart[2])
    )
    shapes = {attention: [*q[:3], v[3]], turned: [q[0], q[2], q[1], v[3]]}
    for new, dims in shapes.items():
        new.outputs[0].name, new.outputs[0].shape = f"{new.name}.result", ir.Shape(dims)
        new.outputs[0].type = node.outputs[0].type
    joined.outputs[0].shape, joined.outputs[0].type = node.outputs[0].shape, node.outputs[0].type
