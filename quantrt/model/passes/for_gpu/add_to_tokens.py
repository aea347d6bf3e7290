# SPDX-License-Identifier: Apache-2.0
"""What is added to tokens that have just become an image is added to the tokens.

    tokens [N,H*W,C] -> Reshape [N,H,W,C] -> Transpose [N,C,H,W] -> Add x
        ->  Add(tokens, Reshape(Transpose(x))) -> Reshape -> Transpose

Transformers between convolutions end in a product whose result goes back to pixels and onto what they were
given. An image lies in memory with its channels innermost, where all four are new sizes and strides: the sum
stands behind the product now, and becomes part of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, is_operator, only_consumer, order_of
from quantrt.ir.sources import SOURCES_KEY, sources_of

__all__ = ["add_to_tokens"]

_TO_IMAGE, _TO_PIXELS = (0, 3, 1, 2), (0, 2, 3, 1)
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def add_to_tokens(graph: ir.Model) -> int:
    """Rewrite the main graph; how many places changed."""
    return sum(_rewrite(graph, node) for node in list(graph.graph))


def _rewrite(graph: ir.Model, add: ir.Node) -> bool:
    if not is_operator(add, "Add") or add.outputs[0].dtype not in _FLOATS or len(add.inputs) != 2:
        return False
    for image, x in (add.inputs, add.inputs[::-1]):
        views = _views(image, add)
        if views is not None and x is not None and _same(x, image):
            return _moved(graph, add, x, *views)
    return False


def _views(image: ir.Value | None, add: ir.Node) -> tuple[ir.Node, ir.Node] | None:
    """The Reshape and the Transpose that make an image of tokens for this sum alone."""
    turn = None if image is None else image.producer()
    if image is None or turn is None or not is_operator(turn, "Transpose") or order_of(turn) != _TO_IMAGE:
        return None
    spread = None if turn.inputs[0] is None else turn.inputs[0].producer()
    if spread is None or not is_operator(spread, "Reshape") or spread.inputs[0] is None:
        return None
    tokens, pixels = spread.inputs[0], spread.outputs[0]
    rows = [only_consumer(value) for value in (tokens, pixels, image)]
    is_alone = rows == [spread, turn, add] and {turn.graph, spread.graph} == {add.graph}
    if not is_alone or tokens.shape is None or pixels.shape is None:
        return None
    given, wide = tokens.shape.dims, pixels.shape.dims
    is_right = len(given) == 3 and len(wide) == 4 and isinstance(given[2], int) and given[2] == wide[3]
    return (spread, turn) if is_right and given[0] == wide[0] else None


def _same(x: ir.Value, image: ir.Value | None) -> bool:
    """Whether nothing is repeated by the sum: every size is a number, or the same symbol's."""
    if image is None or x is image or x.shape is None or image.shape is None:
        return False
    dims = [*x.shape.dims, *image.shape.dims]
    is_known = all(isinstance(dim, int) or dim.value is not None for dim in dims)
    return is_known and list(x.shape.dims) == list(image.shape.dims)


def _moved(graph: ir.Model, add: ir.Node, x: ir.Value, spread: ir.Node, turn: ir.Node) -> bool:
    tokens, total = spread.inputs[0], add.outputs[0]
    if tokens is None or tokens.shape is None:
        return False
    N, S, C = tokens.shape.dims
    sizes = add_constant(graph, f"{add.name}.tokens", np.array([0, -1, C], np.int64))
    pixels = _node("Transpose", [x], f"{add.name}.pixels", add)
    rows = _node("Reshape", [pixels.outputs[0], sizes], f"{add.name}.rows", add)
    inputs = [rows.outputs[0] if value is x else tokens for value in add.inputs]
    moved = _node("Add", inputs, add.name, add)
    again = _node("Reshape", [moved.outputs[0], spread.inputs[1]], spread.name, spread)
    image = _node("Transpose", [again.outputs[0]], turn.name, turn)
    pixels.attributes["perm"] = ir.AttrInt64s("perm", _TO_PIXELS)
    again.attributes.update(spread.attributes)
    image.attributes["perm"] = ir.AttrInt64s("perm", _TO_IMAGE)
    made = (pixels, rows, moved, again, image)
    wide, flat = spread.outputs[0].shape, ir.Shape([N, S, C])
    for node, shape in zip(made, (wide, flat, flat, wide, total.shape), strict=True):
        node.outputs[0].type, node.outputs[0].shape = total.type, shape
    for node, what in zip(made[:-1], ("pixels", "rows", "sum", "spread"), strict=True):
        node.outputs[0].name = f"{total.name}.{what}"
    graph.graph.insert_before(add, made)
    total.replace_all_uses_with(image.outputs[0], replace_graph_outputs=True)
    for old in (add, turn, spread):
        graph.graph.remove(old, safe=True)
    name, total.name = total.name, None
    image.outputs[0].name = name
    return True


def _node(op_type: str, inputs: Sequence[ir.Value | None], name: str | None, stands_for: ir.Node) -> ir.Node:
    """A node in the place of another."""
    node = ir.Node("", op_type, inputs, name=name)
    node.metadata_props[SOURCES_KEY] = "\n".join(sources_of(stands_for))
    return node
