# SPDX-License-Identifier: Apache-2.0
"""The shape of one value, inferred along the nodes that make it and no others.

`infer_shapes` goes through the whole graph each time; a pass that needs a shape here and there while it edits
would take the square of the graph's size.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from quantrt.ir.edit import constant_of
from quantrt.ir.shapes import ONNX_ERRORS

__all__ = ["infer_value"]

_SMALL = 64
"""Elements of a constant whose values take part: targets of Reshape and the like have a handful."""


def infer_value(graph: ir.Model, value: ir.Value) -> None:
    """Fill in the type and shape of a value, and of those that it is made of, where they are not known.

    Best effort: values behind a node that ONNX's inference does not know stay as they are, and so do shapes
    that depend on other values than constants.
    """
    tried: set[ir.Node] = set()
    waiting = [value]
    while waiting:
        current = waiting[-1]
        node = current.producer()
        if current.shape is not None or node is None or node in tried:
            waiting.pop()
            continue
        missing = [given for given in node.inputs if given is not None and _is_missing(given, tried)]
        if missing:
            waiting += missing
            continue
        tried.add(node)
        _infer_node(graph, node)


def _is_missing(value: ir.Value, tried: set[ir.Node]) -> bool:
    producer = value.producer()
    return value.shape is None and producer is not None and producer not in tried


def _infer_node(graph: ir.Model, node: ir.Node) -> None:
    """Fill in what is known of a node's outputs by its inputs."""
    inputs = [value for value in node.inputs if value is not None and value.name]
    types = {value.name or "": _type_of(value) for value in inputs}
    known = {name: kind for name, kind in types.items() if kind is not None}
    if node.domain not in ("", "ai.onnx") or len(known) < len(types):
        return
    constants = {value.name or "": constant_of(value) for value in inputs if value.const_value is not None}
    data = {
        name: onnx.numpy_helper.from_array(array, name)
        for name, array in constants.items()
        if array is not None and array.size <= _SMALL
    }
    opset = graph.opset_imports.get("", 1)
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
        found = onnx.shape_inference.infer_node_outputs(
            schema, ir.to_proto(node), known, data, ir_version=graph.ir_version
        )
    except ONNX_ERRORS:
        return
    for value in node.outputs:
        kind = found.get(value.name or "")
        if kind is not None and kind.HasField("tensor_type"):
            value.type = value.type or ir.serde.deserialize_type_proto_for_type(kind)
            value.shape = value.shape or ir.serde.deserialize_type_proto_for_shape(kind)


def _type_of(value: ir.Value) -> onnx.TypeProto | None:
    """None where the element type or the number of axes is not known."""
    if value.dtype is None or value.dtype == ir.DataType.UNDEFINED or value.shape is None:
        return None
    dims = [dim if isinstance(dim, int) else dim.value for dim in value.shape.dims]
    return onnx.helper.make_tensor_type_proto(int(value.dtype), dims)
