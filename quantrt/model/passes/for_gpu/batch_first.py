# SPDX-License-Identifier: Apache-2.0
"""Attention that puts the sequence before the batch, as torch's MultiheadAttention does, put back in order.

    Gather(x, 1)                                                  ->  Squeeze(Slice(x, 1:2))
    Transpose[1,0,2] -> MatMul w -> Add b                         ->  MatMul w -> Add b -> Transpose[1,0,2]
    Reshape[S,B*H,D] -> Transpose[1,0,2] -> Reshape[B,H,S,D]      ->  Reshape[S,B,H,D] -> Transpose[1,2,0,3]
    Transpose[2,0,1,3] -> Reshape[S*B,E] -> Gemm -> Reshape[S,B,F] -> Transpose[1,0,2]
                                                   ->  Transpose[0,2,1,3] -> Reshape[B,S,E] -> MatMul -> Add

What is on the left merges batch and heads, or sequence and batch, in an order in which they do not lie in
memory, and copies; on the right all but the products are new sizes and strides.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import (
    add_constant,
    constant_of,
    float_attribute,
    int_attribute,
    is_operator,
    only_consumer,
    order_of,
)
from quantrt.ir.sources import SOURCES_KEY, sources_of

__all__ = ["batch_first"]

AXES_OPSET = 13  # Squeeze takes its axes as an input, Slice has taken all of its own for longer
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_FLIP = (1, 0, 2)


def batch_first(graph: ir.Model) -> int:
    """Rewrite the main graph; how many places changed."""
    if graph.opset_imports.get("", AXES_OPSET) < AXES_OPSET:
        return 0
    count = 0
    for rewrite in (_pick, _sink, _split_heads, _join_heads):
        for node in list(graph.graph):
            if node.graph is graph.graph:
                count += rewrite(graph, node)
    return count


def _pick(graph: ir.Model, node: ir.Node) -> bool:
    """A Gather of one place along an axis, as a view."""
    if not is_operator(node, "Gather") or node.inputs[0] is None or node.inputs[0].dtype not in _FLOATS:
        return False
    x, index = node.inputs[0], constant_of(node.inputs[1])
    rank = None if x.shape is None else len(x.shape)
    if index is None or index.ndim or constant_of(x) is not None or not rank:
        return False
    axis, place = int_attribute(node, "axis", 0) % rank, int(index)
    end = np.iinfo(np.int64).max if place == -1 else place + 1
    numbers = [
        add_constant(graph, f"{node.name}.{name}", np.array([number], np.int64))
        for name, number in (("place", place), ("end", end), ("axis", axis))
    ]
    part = _made("Slice", [x, *numbers], [node], f"{node.name}.slice", node.outputs[0])
    dims = list(x.shape.dims) if x.shape is not None else []
    part.outputs[0].shape = ir.Shape([*dims[:axis], 1, *dims[axis + 1 :]])
    squeezed = _made("Squeeze", [part.outputs[0], numbers[2]], [node], node.name, node.outputs[0])
    return _replace(graph, [node], [part, squeezed])


def _sink(graph: ir.Model, node: ir.Node) -> bool:
    """A Transpose in front of a product behind it, where it leaves the last axis alone."""
    if not is_operator(node, "Transpose") or order_of(node) != _FLIP or node.inputs[0] is None:
        return False
    users = dict.fromkeys(use.node for use in node.outputs[0].uses())
    readers = [user for user in users if not is_operator(user, "Shape")]
    product = readers[0] if len(readers) == 1 and not node.outputs[0].is_graph_output() else None
    if product is None or not is_operator(product, "MatMul") or product.inputs[0] is not node.outputs[0]:
        return False
    weight, x = constant_of(product.inputs[1]), node.inputs[0]
    if weight is None or weight.ndim != 2 or x.shape is None or product.graph is not node.graph:
        return False
    chain = [product]
    add = only_consumer(product.outputs[0])
    if add is not None and is_operator(add, "Add") and add.graph is node.graph:
        bias = next((v for v in add.inputs if v is not product.outputs[0]), None)
        array = constant_of(bias)
        chain += [add] if array is not None and array.ndim == 1 else []
    dims = [*x.shape.dims[:2], weight.shape[1]]
    value, made = x, []
    for old in chain:
        inputs = [
            value if given is not None and given in _results(node, chain) else given for given in old.inputs
        ]
        new = _made(old.op_type, inputs, [old], old.name, old.outputs[0])
        value = new.outputs[0]
        value.name, value.shape = f"{old.outputs[0].name}.batch_first", ir.Shape(dims)
        made.append(new)
    last = chain[-1].outputs[0]
    flip = _made("Transpose", [value], [node], f"{node.name}.behind", last)
    flip.attributes["perm"] = ir.AttrInt64s("perm", _FLIP)
    return _replace(graph, chain, [*made, flip], unless_read=node)


def _split_heads(graph: ir.Model, node: ir.Node) -> bool:
    """Heads apart from the batch at once, not by way of batch times heads."""
    chain = _chain(node, ("Reshape", "Transpose", "Reshape"))
    if chain is None or order_of(chain[1]) != _FLIP:
        return False
    x, flat, result = (_dims(chain[0].inputs[0]), _dims(chain[0].outputs[0]), _dims(chain[2].outputs[0]))
    if x is None or flat is None or result is None or (len(x), len(flat), len(result)) != (3, 3, 4):
        return False
    (S, B, E), (H, D) = x, (result[1], result[3])
    is_known = isinstance(E, int) and isinstance(H, int) and isinstance(D, int) and E == H * D
    if not is_known or [flat[0], flat[2]] != [S, D] or result[2] != S:  # the batch is what remains
        return False
    target = add_constant(graph, f"{chain[0].name}.heads", np.array([0, 0, H, D], np.int64))
    apart = _made("Reshape", [chain[0].inputs[0], target], chain[:1], chain[0].name, chain[2].outputs[0])
    apart.outputs[0].name, apart.outputs[0].shape = (
        f"{chain[0].outputs[0].name}.heads",
        ir.Shape([S, B, H, D]),
    )
    turn = _made("Transpose", [apart.outputs[0]], chain[1:], chain[1].name, chain[2].outputs[0])
    turn.attributes["perm"] = ir.AttrInt64s("perm", (1, 2, 0, 3))
    return _replace(graph, chain, [apart, turn])


def _join_heads(graph: ir.Model, node: ir.Node) -> bool:
    """The product behind attention on [B, S, E], not on the sequence first."""
    chain = _chain(node, ("Transpose", "Reshape", "Gemm", "Reshape", "Transpose"))
    if chain is None or order_of(chain[0]) != (2, 0, 1, 3) or order_of(chain[4]) != _FLIP:
        return False
    product = chain[2]
    weight = constant_of(product.inputs[1])
    scales = (float_attribute(product, "alpha", 1.0), float_attribute(product, "beta", 1.0))
    x, flat, result = (_dims(chain[0].inputs[0]), _dims(chain[1].outputs[0]), _dims(chain[4].outputs[0]))
    bias = product.inputs[2] if len(product.inputs) > 2 else None
    has_other_bias = bias is not None and constant_of(bias) is None
    if weight is None or scales != (1.0, 1.0) or int_attribute(product, "transA", 0) or has_other_bias:
        return False
    weight = weight.T if int_attribute(product, "transB", 0) else weight
    if x is None or flat is None or result is None or (len(x), len(flat), len(result)) != (4, 2, 3):
        return False
    _, H, S, D = x
    is_known = isinstance(H, int) and isinstance(D, int) and flat[1] == H * D == weight.shape[0]
    if not is_known or result[1:] != [S, weight.shape[1]]:  # the batch is what remains
        return False
    return _replace(graph, chain, _joined(graph, chain, weight, int(weight.shape[0])))


def _joined(graph: ir.Model, chain: Sequence[ir.Node], weight: np.ndarray, width: int) -> list[ir.Node]:
    product, last = chain[2], chain[4].outputs[0]
    B, H, S, D = _dims(chain[0].inputs[0]) or []
    turn = _made("Transpose", [chain[0].inputs[0]], chain[:1], chain[0].name, last)
    turn.attributes["perm"] = ir.AttrInt64s("perm", (0, 2, 1, 3))
    target = add_constant(graph, f"{chain[1].name}.width", np.array([0, 0, width], np.int64))
    flat = _made("Reshape", [turn.outputs[0], target], chain[1:2], chain[1].name, last)
    columns = add_constant(graph, f"{product.name}.columns", np.ascontiguousarray(weight))
    made = [turn, flat, _made("MatMul", [flat.outputs[0], columns], chain[2:], product.name, last)]
    shapes: list[list[int | ir.SymbolicDim]] = [[B, S, H, D], [B, S, width], [B, S, weight.shape[1]]]
    for node, dims, name in zip(made, shapes, ("turned", "joined", "product"), strict=True):
        node.outputs[0].name, node.outputs[0].shape = f"{last.name}.{name}", ir.Shape(dims)
    if len(product.inputs) > 2 and product.inputs[2] is not None:
        inputs = [made[-1].outputs[0], product.inputs[2]]
        made.append(_made("Add", inputs, chain[2:3], f"{product.name}.add", last))
    return made


def _results(node: ir.Node, chain: Sequence[ir.Node]) -> list[ir.Value]:
    return [node.outputs[0], *(other.outputs[0] for other in chain)]


def _dims(value: ir.Value | None) -> list[int | ir.SymbolicDim] | None:
    """Sizes of a value, one without a symbol being like no other."""
    if value is None or value.shape is None:
        return None
    dims = list(value.shape.dims)
    is_nameless = any(isinstance(dim, ir.SymbolicDim) and dim.value is None for dim in dims)
    return None if is_nameless else dims


def _chain(first: ir.Node, op_types: Sequence[str]) -> list[ir.Node] | None:
    """Nodes of these operators, each read by the next alone."""
    found: list[ir.Node] = []
    node: ir.Node | None = first
    for op_type in op_types:
        if found:
            node = only_consumer(found[-1].outputs[0])
        if node is None or not is_operator(node, op_type) or node.graph is not first.graph:
            return None
        if found and node.inputs[0] is not found[-1].outputs[0]:
            return None
        found.append(node)
    return found


def _made(
    op_type: str,
    inputs: Sequence[ir.Value | None],
    merged: Sequence[ir.Node],
    name: str | None,
    like: ir.Value,
) -> ir.Node:
    """A node in the place of others, its result of the type of `like`."""
    node = ir.Node("", op_type, inputs, name=name)
    names = dict.fromkeys(source for old in merged for source in sources_of(old))
    node.metadata_props[SOURCES_KEY] = "\n".join(names)
    node.outputs[0].type = like.type
    return node


def _replace(
    graph: ir.Model, chain: Sequence[ir.Node], made: Sequence[ir.Node], unless_read: ir.Node | None = None
) -> bool:
    """Put nodes in the place of others; the last result takes the name and shape of theirs.

    Args:
        unless_read: goes too where nothing reads it any more.
    """
    last, new = chain[-1].outputs[0], made[-1].outputs[0]
    graph.graph.insert_before(chain[0], made)
    new.shape, name = last.shape, last.name
    last.replace_all_uses_with(new, replace_graph_outputs=True)
    constants = [value for node in chain for value in node.inputs if constant_of(value) is not None]
    for node in reversed(chain):
        graph.graph.remove(node, safe=True)
    last.name, new.name = None, name
    if unless_read is not None and not unless_read.outputs[0].uses():
        graph.graph.remove(unless_read, safe=True)
    for value in constants:
        if value is not None and not value.uses() and graph.graph.initializers.get(value.name or "") is value:
            del graph.graph.initializers[value.name or ""]
    return True
