# SPDX-License-Identifier: Apache-2.0
"""Identity of a model, its structure and its weights apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import onnx_ir as ir

from quantrt.ir.mapped import stream_bytes
from quantrt.model.model import Fingerprint
from quantrt.threads import usable_cores

__all__ = ["LARGE_BYTES", "fingerprint", "structure"]

LARGE_BYTES = 1 << 30
"""Of weights: from here on hashing them takes one core seconds."""


def fingerprint(graph: ir.Model) -> Fingerprint:
    """Two SHA-256 hashes, in hexadecimal.

    The graph's covers operators, attributes, wiring by value names, the declared inputs and outputs, opset
    versions, and name, shape and element type of every tensor. The weights' covers the bytes of every
    tensor, those in attributes included, in the order of their names; of LARGE_BYTES and more in all it is
    that of the tensors' own hashes, which all cores compute. Neither depends on the producer, documentation,
    node names, inferred shapes, or on where the bytes are stored.
    """
    weights: list[ir.TensorProtocol] = []
    return Fingerprint(graph=_structure(graph, weights), weights=_hash_of(weights))


def _hash_of(weights: Sequence[ir.TensorProtocol]) -> str:
    if sum(tensor.nbytes for tensor in weights) < LARGE_BYTES:
        whole = hashlib.sha256()
        for tensor in weights:
            for chunk in _bytes_of(tensor):
                whole.update(chunk)
        return whole.hexdigest()
    with ThreadPoolExecutor(usable_cores()) as pool:  # hashlib computes without Python's lock
        return hashlib.sha256(b"".join(pool.map(_digest, weights))).hexdigest()


def _digest(tensor: ir.TensorProtocol) -> bytes:
    own = hashlib.sha256()
    for chunk in _bytes_of(tensor):
        own.update(chunk)
    return own.digest()


def _bytes_of(tensor: ir.TensorProtocol) -> Iterator[bytes | memoryview]:
    if isinstance(tensor, ir.StringTensor):
        for text in tensor.string_data():
            yield len(text).to_bytes(8, "little") + text
    elif tensor.dtype.bitwidth < 8:
        yield tensor.tobytes()  # packed, however it is held in memory
    else:
        yield from stream_bytes(tensor.numpy())


def structure(graph: ir.Model) -> str:
    """The graph's hash alone: no bytes of tensors are read."""
    return _structure(graph, [])


def _structure(graph: ir.Model, weights: list[ir.TensorProtocol]) -> str:
    found = {
        "opsets": {domain or "ai.onnx": version for domain, version in sorted(graph.opset_imports.items())},
        "graph": _graph(graph.graph, weights),
        "functions": [_function(function, weights) for _, function in sorted(graph.functions.items())],
    }
    text = json.dumps(found, sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def _graph(graph: ir.Graph, weights: list[ir.TensorProtocol]) -> dict[str, Any]:
    initializers = []
    for name, value in sorted(graph.initializers.items()):
        initializers.append(
            [name, _tensor(value.const_value, weights) if value.const_value is not None else None]
        )
    return {
        "inputs": [_value(value) for value in graph.inputs if value.name not in graph.initializers],
        "outputs": [_value(value) for value in graph.outputs],
        "initializers": initializers,
        "nodes": [_node(node, weights) for node in graph],
    }


def _function(function: ir.Function, weights: list[ir.TensorProtocol]) -> dict[str, Any]:
    return {
        "name": list(function.identifier()),
        "inputs": [value.name for value in function.inputs],
        "outputs": [value.name for value in function.outputs],
        "attributes": [
            _attribute(attribute, weights) for _, attribute in sorted(function.attributes.items())
        ],
        "nodes": [_node(node, weights) for node in function],
    }


def _node(node: ir.Node, weights: list[ir.TensorProtocol]) -> list[Any]:
    return [
        node.domain,
        node.op_type,
        node.overload,
        [value.name if value is not None else "" for value in node.inputs],
        [value.name for value in node.outputs],
        [_attribute(attribute, weights) for _, attribute in sorted(node.attributes.items())],
    ]


def _attribute(attribute: ir.Attr, weights: list[ir.TensorProtocol]) -> list[Any]:
    if attribute.is_ref():
        return [attribute.name, "ref", attribute.ref_attr_name]
    kind, value = ir.AttributeType, attribute.value
    if attribute.type == kind.TENSOR:
        value = _tensor(value, weights)
    elif attribute.type == kind.TENSORS:
        value = [_tensor(tensor, weights) for tensor in value]
    elif attribute.type == kind.GRAPH:
        value = _graph(value, weights)
    elif attribute.type == kind.GRAPHS:
        value = [_graph(graph, weights) for graph in value]
    elif attribute.type in (kind.INTS, kind.FLOATS, kind.STRINGS):
        value = list(value)
    return [attribute.name, int(attribute.type), value]


def _value(value: ir.Value) -> list[Any]:
    dims = None if value.shape is None else [_dim(dim) for dim in value.shape.dims]
    return [value.name, _type(value.type), dims]


def _type(type_: ir.TypeProtocol | None) -> list[Any] | None:
    if type_ is None:
        return None
    element = type_.elem_type
    return [type(type_).__name__, element.name if isinstance(element, ir.DataType) else _type(element)]


def _dim(dim: int | ir.SymbolicDim) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value


def _tensor(tensor: ir.TensorProtocol, weights: list[ir.TensorProtocol]) -> list[Any]:
    """The tensor's type and shape; it goes to `weights`."""
    weights.append(tensor)
    return [tensor.dtype.name, list(tensor.shape.numpy())]
