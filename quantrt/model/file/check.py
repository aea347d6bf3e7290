# SPDX-License-Identifier: Apache-2.0
"""Check a model's protobuf before anything is built from it: versions, wiring, tensors."""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Iterator, Mapping

import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]

from quantrt.errors import ModelError
from quantrt.model.file.check_tensors import check_initializers, check_tensor

__all__ = ["MAX_OPSET", "MIN_OPSET", "all_nodes", "check_proto", "subgraphs_of"]

MIN_OPSET, MAX_OPSET = 7, 25  # 7 is the first that ONNX Runtime runs
MIN_IR_VERSION = 3  # the first of the 1.0 format; https://onnx.ai/onnx/repo-docs/Versioning.html

_STANDARD_DOMAINS = ("", "ai.onnx")


def check_proto(proto: onnx.ModelProto, name: str, lifted_bytes: Mapping[int, int]) -> None:
    """Check everything that can be told without external data.

    Args:
        name: of the model in messages.
        lifted_bytes: size of the data of those main-graph initializers whose data was left out, by index.

    Raises:
        ModelError: the first thing found wrong.
    """
    if not proto.HasField("graph"):
        raise ModelError(f"cannot read {name} as an ONNX model", got="a protobuf message without a graph")
    _check_text(proto, name)
    _check_versions(proto, name)
    if not proto.graph.output:
        raise ModelError(f"cannot use {name}", got="a graph without outputs", expected="at least one output")
    check_initializers(proto.graph, lifted_bytes)
    _check_graph(proto.graph, frozenset())
    opset = next(entry.version for entry in proto.opset_import if entry.domain in _STANDARD_DOMAINS)
    for node in all_nodes(proto.graph):
        _check_signature(node, opset)
    for function in proto.functions:
        for node in function.node:
            _check_attributes(node, frozenset(), is_function=True)


def subgraphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The bodies of a control-flow node."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Those of a graph and of the bodies inside it."""
    for node in graph.node:
        yield node
        for subgraph in subgraphs_of(node):
            yield from all_nodes(subgraph)


def _check_text(message: Message, name: str) -> None:
    """Every name is text: protobuf hands over bytes that are no UTF-8 as they are."""
    for field, value in message.ListFields():
        values = value if field.is_repeated else (value,)
        if field.type == field.TYPE_MESSAGE:
            for part in values:
                _check_text(part, name)
        elif field.type == field.TYPE_STRING and not all(isinstance(text, str) for text in values):
            raise ModelError(f"cannot read {name}: {field.full_name} is not UTF-8 text", got=repr(value))


def _check_versions(proto: onnx.ModelProto, name: str) -> None:
    if not MIN_IR_VERSION <= proto.ir_version <= onnx.IR_VERSION:
        raise ModelError(
            f"cannot read {name}: its ONNX IR version is not supported",
            got=f"IR version {proto.ir_version}",
            expected=f"{MIN_IR_VERSION} to {onnx.IR_VERSION}",
        )
    versions = [entry.version for entry in proto.opset_import if entry.domain in _STANDARD_DOMAINS]
    if not versions:
        raise ModelError(f"cannot read {name}", got="no import of the standard operator set")
    if len(set(versions)) > 1 or not MIN_OPSET <= versions[0] <= MAX_OPSET:
        raise ModelError(
            f"cannot read {name}: its operator set is not supported",
            got="opset " + ", ".join(map(str, versions)),
            expected=f"{MIN_OPSET} to {MAX_OPSET}",
            hint="`onnx.version_converter.convert_version(model, 17)`, or exporting the model again",
        )


def _check_graph(graph: onnx.GraphProto, outer: frozenset[str]) -> None:
    """Names are defined once, before they are used or at least somewhere, and not in a circle."""
    if graph.sparse_initializer:
        raise ModelError("cannot use sparse initializers", got=f"'{graph.sparse_initializer[0].values.name}'")
    own = _defined_names(graph)
    visible = outer | own
    for node in graph.node:
        for name in node.input:
            if name and name not in visible:
                raise ModelError(f"node {_label(node)} uses a value that nothing defines", got=f"'{name}'")
        _check_attributes(node, visible)
    for output in graph.output:
        if output.name not in own:
            raise ModelError(f"nothing defines the graph output '{output.name}'")
    repeated = [name for name, count in Counter(output.name for output in graph.output).items() if count > 1]
    if repeated:
        raise ModelError(f"the graph lists its output '{repeated[0]}' more than once")
    _check_acyclic(graph)


def _defined_names(graph: onnx.GraphProto) -> frozenset[str]:
    names: set[str] = set()
    for value in graph.input:
        _define(names, value.name, "graph input")
    inputs = frozenset(names)  # an initializer may give an input its default
    initializers: set[str] = set()
    for tensor in graph.initializer:
        _define(initializers, tensor.name, "initializer")
    names |= initializers
    for node in graph.node:
        for name in node.output:
            if name:
                _define(names, name, f"output of node {_label(node)}")
    return frozenset(names | inputs)


def _define(names: set[str], name: str, what: str) -> None:
    if not name:
        raise ModelError(f"a {what} has no name")
    if name in names:
        raise ModelError(f"two values have one name: '{name}'", got=f"a second definition as {what}")
    names.add(name)


def _check_attributes(node: onnx.NodeProto, visible: frozenset[str], *, is_function: bool = False) -> None:
    for attribute in node.attribute:
        if attribute.type in (onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS):
            raise ModelError(f"node {_label(node)} has a sparse tensor, which is not supported")
        if attribute.type == onnx.AttributeProto.TENSOR and not attribute.ref_attr_name:
            check_tensor(attribute.t, f"attribute '{attribute.name}' of node {_label(node)}")
        for tensor in attribute.tensors:
            check_tensor(tensor, f"attribute '{attribute.name}' of node {_label(node)}")
    for subgraph in subgraphs_of(node):
        check_initializers(subgraph, {})
        if not is_function:
            _check_graph(subgraph, visible)


def _check_signature(node: onnx.NodeProto, opset: int) -> None:
    """A standard operator has outputs, and its attributes the types the standard gives them."""
    if node.domain not in _STANDARD_DOMAINS or not onnx.defs.has(node.op_type, opset):
        return
    if not any(node.output):
        raise ModelError(f"node {_label(node)} has no output")
    known = onnx.defs.get_schema(node.op_type, opset).attributes
    for attribute in node.attribute:
        schema = known.get(attribute.name)
        wanted = attribute.type if schema is None else schema.type.value  # type: ignore[attr-defined]
        if attribute.type != wanted:
            names = onnx.AttributeProto.AttributeType
            raise ModelError(
                f"attribute '{attribute.name}' of node {_label(node)} has the wrong type",
                got=names.Name(attribute.type).lower(),
                expected=names.Name(wanted).lower(),
            )


def _check_acyclic(graph: onnx.GraphProto) -> None:
    producer = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = {
        index: {producer[name] for name in _used_names(node) if name in producer}
        for index, node in enumerate(graph.node)
    }
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        names = " -> ".join(_label(graph.node[index]) for index in reversed(error.args[1]))
        raise ModelError("the graph has a cycle", got=names) from error


def _used_names(node: onnx.NodeProto) -> set[str]:
    """Names that the node reads, those its subgraphs capture included."""
    used = {name for name in node.input if name}
    for subgraph in subgraphs_of(node):
        inside = {output.name for output in subgraph.output}
        for inner in subgraph.node:
            inside |= _used_names(inner)
        used |= inside - _defined_names(subgraph)
    return used


def _label(node: onnx.NodeProto) -> str:
    return f"'{node.name}' ({node.op_type})" if node.name else node.op_type
