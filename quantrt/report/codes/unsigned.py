# SPDX-License-Identifier: Apache-2.0
"""Codes of activations as ONNX Runtime has them inside: on x86 CPUs int8 is uint8 there, 128 larger.

    int8 codes q, zero point z  ->  uint8 codes q + 128, zero point z + 128

It changes the type only where a DequantizeLinear alone reads the codes. Where they are an output too they
stay int8, and the convolutions beside them are computed in floats: that is not what the engine makes.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
from onnx import numpy_helper

from quantrt.plan.plan import LibraryModel

__all__ = ["unsigned_codes"]

X86 = ("x86_64", "AMD64")
OFFSET = 128

_ZERO_POINT = 2
"""Place among the inputs of both operators."""


def unsigned_codes(model: LibraryModel) -> LibraryModel:
    """The model of ONNX Runtime with uint8 codes where this CPU's build of it computes these."""
    if platform.machine() not in X86:
        return model
    proto = onnx.ModelProto.FromString(model.graph)
    graph = proto.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    kept = {value.name for value in graph.output}
    changed: set[str] = set()
    for pair in _pairs(graph):
        points = [constants.get(_zero_point(node)) for node in pair]
        if pair[0].output[0] in kept or any(point is None or not _is_int8(point) for point in points):
            continue
        for node, point in zip(pair, points, strict=True):
            assert point is not None
            node.input[_ZERO_POINT] = _unsigned(graph, constants, point)
        changed.add(pair[0].output[0])
    if not changed:
        return model
    told = [value for value in graph.value_info if value.name not in changed]  # those have the type of before
    del graph.value_info[:]
    graph.value_info.extend(told)
    return replace(model, graph=proto.SerializeToString())


def _pairs(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, ...]]:
    """Every QuantizeLinear with all that reads its codes, where that dequantizes them."""
    readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in (*node.input, *_captured(node)):
            readers[name].append(node)
    for node in graph.node:
        others = readers[node.output[0]] if node.op_type == "QuantizeLinear" else []
        if others and all(
            reader.op_type == "DequantizeLinear" and reader.input[0] == node.output[0] for reader in others
        ):
            yield (node, *others)


def _captured(node: onnx.NodeProto) -> Iterator[str]:
    """Names that the bodies of a node read."""
    for body in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
        for inner in body.node:
            yield from (*inner.input, *_captured(inner))


def _zero_point(node: onnx.NodeProto) -> str:
    return node.input[_ZERO_POINT] if len(node.input) > _ZERO_POINT else ""


def _is_int8(point: onnx.TensorProto) -> bool:
    is_inside = point.data_location != onnx.TensorProto.EXTERNAL
    return is_inside and point.data_type == onnx.TensorProto.INT8


def _unsigned(graph: onnx.GraphProto, constants: dict[str, onnx.TensorProto], point: onnx.TensorProto) -> str:
    """The name of a zero point's uint8 form, which is added where it is not there."""
    name = f"{point.name}_unsigned"
    if name not in constants:
        array = numpy_helper.to_array(point).astype(np.int16) + OFFSET
        constants[name] = graph.initializer.add()
        constants[name].CopyFrom(numpy_helper.from_array(array.astype(np.uint8), name))
    return name
