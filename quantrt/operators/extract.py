# SPDX-License-Identifier: Apache-2.0
"""A few nodes of a model as a model of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter

import onnx
import onnx_ir as ir

from quantrt.errors import ModelError
from quantrt.ir.edit import constant_of

__all__ = ["extract_nodes", "index_nodes", "read_values"]

PLACES = "quantrt.operators.extract.places"
"""Of a model that is indexed: its nodes with their places, by name, in onnx-ir's store for analyses."""


def index_nodes(graph: ir.Model) -> ir.Model:
    """The model, which must not change from here on: `extract_nodes` finds its nodes without a search."""
    places: dict[str, list[tuple[int, ir.Node]]] = {}
    for place, node in enumerate(graph.graph):
        places.setdefault(node.name or "", []).append((place, node))
    graph.meta[PLACES] = places
    return graph


def extract_nodes(
    graph: ir.Model, names: Sequence[str], inputs: Sequence[str], outputs: Sequence[str]
) -> ir.Model:
    """The nodes called `names`, in the model's order, with copies of the constants that they read.

    Args:
        inputs: values that the new model takes; a constant among them is taken too.
        outputs: values that it returns.

    Raises:
        ModelError: there is no such node, or it reads a value that is neither made, constant nor an input.
    """
    wanted = set(names)
    nodes = _named(graph, wanted)
    if len(nodes) != len(wanted):
        missing = sorted(wanted - {node.name or "" for node in nodes})
        raise ModelError(
            "the model lacks nodes that are to be run", got=", ".join(missing) or "doubled names"
        )
    proto = onnx.ModelProto(ir_version=graph.ir_version)
    for domain, version in graph.opset_imports.items():
        proto.opset_import.append(onnx.OperatorSetIdProto(domain=domain, version=version))
    made = {value.name: value for node in nodes for value in node.outputs if value.name}
    read = {value.name or "": value for node in nodes for value in read_values(node)}
    known = {**read, **made}
    proto.graph.name = nodes[0].name or "nodes" if nodes else "nodes"
    proto.graph.input.extend(_declared(known.get(name), name) for name in inputs)
    proto.graph.output.extend(_declared(known.get(name), name) for name in outputs)
    constants: dict[str, onnx.TensorProto] = {}
    for name, value in read.items():
        if name in made or name in inputs:
            continue
        if value.const_value is None or constant_of(value) is None:
            raise ModelError("nodes read a value that is not theirs", got=name, expected=", ".join(inputs))
        constants[name] = ir.serde.serialize_tensor(value.const_value)
        constants[name].name = name
    proto.graph.initializer.extend(constants.values())
    proto.graph.node.extend(ir.serde.serialize_node(node) for node in nodes)
    return ir.serde.deserialize_model(proto)


def _named(graph: ir.Model, wanted: Collection[str]) -> list[ir.Node]:
    """The nodes with these names, in the model's order."""
    places = graph.meta.get(PLACES)
    if places is None:
        return [node for node in graph.graph if node.name in wanted]
    found = [pair for name in wanted for pair in places.get(name, ())]
    return [node for _, node in sorted(found, key=itemgetter(0))]


def _declared(value: ir.Value | None, name: str) -> onnx.ValueInfoProto:
    """The type of a value as far as it is known."""
    if value is None or value.type is None:
        return onnx.ValueInfoProto(name=name)
    proto: onnx.ValueInfoProto = ir.serde.serialize_value(value)
    return proto


def read_values(node: ir.Node) -> Iterator[ir.Value]:
    """The values of the main graph that a node reads, those that its subgraphs capture included."""
    own: set[ir.Value] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        yield from (value for value in current.inputs if value is not None and value not in own)
        for attribute in current.attributes.values():
            bodies = [attribute.as_graph()] if attribute.type == ir.AttributeType.GRAPH else []
            for body in bodies:
                inner = [value for item in body for value in item.outputs]
                own.update([*body.inputs, *body.initializers.values(), *inner])
                stack.extend(reversed(list(body)))
                yield from (value for value in body.outputs if value not in own)
