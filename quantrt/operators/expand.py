# SPDX-License-Identifier: Apache-2.0
"""Nodes that are functions of other operators, replaced by what they are made of."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
from onnx.defs import SchemaError
from onnx_ir.passes.common import InlinePass, ShapeInferencePass

from quantrt.errors import ModelError
from quantrt.ir.clone import clone
from quantrt.operators.table import OPERATORS

__all__ = ["expand_functions"]

_MAX_ROUNDS = 8
"""Functions of functions of functions: ONNX's own are two deep."""


def expand_functions(graph: ir.Model) -> ir.Model:
    """The model with its own functions, and ONNX's where no row of OPERATORS fits, written out.

    Where the definition depends on input types that cannot be inferred, the node stays. The model itself is
    returned where there is nothing to do, a changed copy otherwise.

    Raises:
        ModelError: functions that call each other in a circle.
    """
    for _ in range(_MAX_ROUNDS):
        nodes = _candidates(graph)
        if not nodes and not graph.functions:
            return graph
        graph = clone(graph)
        if nodes:
            graph = ShapeInferencePass()(graph).model
        found = [_define(node, graph, f"call{number}") for number, node in enumerate(_candidates(graph))]
        if not any(found) and not graph.functions:
            return graph
        try:
            InlinePass()(graph)
        except (ir.passes.PassError, ir.passes.InvariantError, ValueError) as error:
            reason = str(error.__cause__ or error)
            raise ModelError("cannot inline the functions of the model", got=reason) from error
    raise ModelError(
        "the functions of the model are nested too deep", expected=f"at most {_MAX_ROUNDS} levels"
    )


def _candidates(graph: ir.Model) -> list[ir.Node]:
    """Nodes of ONNX's own domain without a row, for which ONNX has a definition by others.

    Those with a subgraph (SequenceMap) are left out: the inliner cannot pass one to a function.
    """
    known = {row.op_type for row in OPERATORS}
    return [
        node
        for node in graph.graph.all_nodes()
        if node.domain == ""
        and node.op_type not in known
        and all(attribute.type != ir.AttributeType.GRAPH for attribute in node.attributes.values())
        and _schema(node, graph) is not None
    ]


def _schema(node: ir.Node, graph: ir.Model) -> Any:
    """The schema of an operator that is a function, else None."""
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, graph.opset_imports.get("", 1), "")
    except SchemaError:
        return None
    return schema if schema.has_function or schema.has_context_dependent_function else None


def _define(node: ir.Node, graph: ir.Model, overload: str) -> bool:
    """Add ONNX's definition of one node to the model, under an overload that this node alone calls."""
    schema, opset = _schema(node, graph), graph.opset_imports.get("", 1)
    if schema.has_function:
        version = max(v for v in schema.function_opset_versions if v <= opset)
        written = schema.get_function_with_opset_version(version)
    else:
        types = [_type(value) for value in node.inputs]
        if None in types:
            return False
        version = max(v for v in schema.context_dependent_function_opset_versions if v <= opset)
        call = ir.to_proto(node).SerializeToString()
        written = schema.get_context_dependent_function_with_opset_version(version, call, types)
    proto = onnx.FunctionProto()
    proto.ParseFromString(written)
    proto.overload = node.overload = overload
    del proto.output[len(node.outputs) :]  # a definition leaves out what the node does not name
    function = ir.serde.deserialize_function(proto)
    graph.functions[function.identifier()] = function
    return True


def _type(value: ir.Value | None) -> bytes | None:
    """The type of an input as ONNX wants it; None when it is not known."""
    if value is None:
        return b""
    if value.type is None:
        return None
    proto = onnx.ValueInfoProto()
    proto.ParseFromString(ir.to_proto(value).SerializeToString())
    return bytes(proto.type.SerializeToString())
