# SPDX-License-Identifier: Apache-2.0
"""A graph in float16 or bfloat16 as one in float32, which computes the same with fewer roundings."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import free_name, is_operator, prepend

__all__ = ["HALVES", "TYPE_ATTRIBUTES", "widen_halves"]

HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
"""Attributes that hold the number of an element type."""


def widen_halves(graph: ir.Model, kinds: Collection[ir.DataType] = HALVES) -> int:
    """Give every float of 16 bits 32, subgraphs included; how many constants, casts and ends changed.

    Inputs and outputs of the model that are float16 stay so, behind a Cast. Others become float32 themselves:
    numpy has no bfloat16, and float64 has more bits than anything behind it.

    Args:
        kinds: element types that become float32; numbers beyond its range become its ends.
    """
    kept = [kind for kind in kinds if kind == ir.DataType.FLOAT16]
    inputs, outputs = _ends(graph.graph.inputs, kept), _ends(graph.graph.outputs, kept)
    ends = (*graph.graph.inputs, *graph.graph.outputs)
    count = sum(value.dtype in kinds and value.dtype not in kept for value in ends)
    for part in graph.graphs():
        for value in part.initializers.values():
            if value.const_value is not None and value.const_value.dtype in kinds:
                value.const_value = _widened(value.const_value)
                count += 1
        for node in part:
            count += _widen_attributes(node, kinds)
            for value in node.outputs:
                _set_float(value, kinds)
        for value in (*part.inputs, *part.initializers.values()):
            _set_float(value, kinds)
    for value, kind in inputs:
        _cast_behind(graph, value, kind)
    for value, kind in outputs:
        _cast_before(graph, value, kind)
    return count


def _ends(values: Iterable[ir.Value], kinds: Collection[ir.DataType]) -> list[tuple[ir.Value, ir.DataType]]:
    return [
        (value, kind)
        for value in dict.fromkeys(values)
        if (kind := value.dtype) is not None and kind in kinds
    ]


def _widened(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    array = tensor.numpy()
    if array.dtype == np.float64:
        end = np.finfo(np.float32).max
        array = np.where(np.isfinite(array), np.clip(array, -end, end), array)
    return ir.Tensor(np.asarray(array, np.float32), name=tensor.name)


def _set_float(value: ir.Value, kinds: Collection[ir.DataType]) -> None:
    if value.type is not None and value.dtype in kinds:
        value.type = _float_type(value.type)


def _float_type(kind: ir.TypeProtocol) -> ir.TypeProtocol:
    """The type in float32: of tensors, or of sequences of them."""
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        return type(kind)(_float_type(kind.elem_type))
    return ir.TensorType(ir.DataType.FLOAT)


def _widen_attributes(node: ir.Node, kinds: Collection[ir.DataType]) -> int:
    count = 0
    for name, attribute in list(node.attributes.items()):
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype in kinds:
            node.attributes[name] = ir.AttrTensor(name, _widened(attribute.as_tensor()))
            count += 1
        elif (
            name in TYPE_ATTRIBUTES and attribute.type == ir.AttributeType.INT and attribute.as_int() in kinds
        ):
            node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT))
            count += 1
    return count


def _cast_behind(graph: ir.Model, value: ir.Value, kind: ir.DataType) -> None:
    """Let everything read a float32 form of an input, which keeps its type."""
    value.type = ir.TensorType(kind)
    cast = _cast(graph, value, ir.DataType.FLOAT, f"{value.name}_widened")
    for node, index in tuple(value.uses()):
        if node is not cast and not (is_operator(node, "Cast") and value.is_graph_output()):
            node.replace_input_with(index, cast.outputs[0])
    prepend(graph, [cast])


def _cast_before(graph: ir.Model, value: ir.Value, kind: ir.DataType) -> None:
    """Make an output of the model of its float32 form, under its name and in its type."""
    if value.is_graph_input():
        return
    name = value.name
    cast = _cast(graph, value, kind, f"{name}_narrowed")
    for index, output in enumerate(graph.graph.outputs):
        if output is value:
            graph.graph.outputs[index] = cast.outputs[0]
    value.name = free_name(graph, f"{name}_wide")
    cast.outputs[0].name = name
    graph.graph.append(cast)


def _cast(graph: ir.Model, value: ir.Value, kind: ir.DataType, name: str) -> ir.Node:
    node = ir.node("Cast", [value], attributes={"to": int(kind)}, name=free_name(graph, name))
    result = node.outputs[0]
    result.name, result.shape, result.type = node.name, value.shape, ir.TensorType(kind)
    return node
