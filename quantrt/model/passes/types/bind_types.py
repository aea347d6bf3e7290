# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs in another element type: Cast, or a scale for int8 codes, at the edges of the graph.

    x uint8   -> Cast                    -> x.float32 -> ...  -> y.float32 -> Cast           -> y float16
    x int8    -> DequantizeLinear(scale) -> x.float32 -> ...  -> y.float32 -> QuantizeLinear -> y int8

Where the graph quantizes such an input on the very grid of its codes, or dequantizes an output from it, the
codes go straight through.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from quantrt.errors import UsageError
from quantrt.ir.edit import add_constant, constant_of, free_name, is_operator, prepend
from quantrt.model.binding import Binding

__all__ = ["bind_types", "edge_scale"]

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def bind_types(graph: ir.Model, bindings: Mapping[str, Binding]) -> int:
    """Change `graph` in place; how many inputs and outputs changed.

    Names stay those of what a caller passes and gets.

    Args:
        bindings: by input or output; names that are neither are ignored.

    Raises:
        UsageError: an input is handed out as it is, or codes have no scale.
    """
    count = 0
    for number, value in enumerate(list(graph.graph.inputs)):
        binding = bindings.get(value.name or "")
        if binding is not None and value.dtype != _type(binding):
            _bind_input(graph, number, value, binding)
            count += 1
    for number, value in enumerate(list(graph.graph.outputs)):
        binding = bindings.get(value.name or "")
        if binding is not None and value.dtype != _type(binding):
            _bind_output(graph, number, value, binding)
            count += 1
    return count


def edge_scale(graph: ir.Model, name: str) -> float | None:
    """The scale on which a graph itself quantizes an input, or dequantizes an output; None without one."""
    for value in graph.graph.inputs:
        if value.name == name:
            scales = {_int8_scale(node, "QuantizeLinear") for node in value.consumers()}
            return scales.pop() if len(scales) == 1 else None
    for value in graph.graph.outputs:
        if value.name == name:
            return _int8_scale(value.producer(), "DequantizeLinear")
    return None


def _bind_input(graph: ir.Model, number: int, value: ir.Value, binding: Binding) -> None:
    if value.is_graph_output():
        raise UsageError(f"input '{value.name}' cannot be {binding.dtype}: it is an output too")
    name = value.name or ""
    value.name = None
    source = ir.Value(name=name, type=ir.TensorType(_type(binding)), shape=value.shape)
    graph.graph.inputs[number] = source
    if binding.scale is not None:
        for node in [*value.consumers()]:
            if _int8_scale(node, "QuantizeLinear") == binding.scale:
                _pass_codes(graph, node, source)
    if not value.uses():
        return
    node = _conversion(
        graph, source, value.dtype, binding, operator="DequantizeLinear", name=f"{name}.to_{_word(value)}"
    )
    inner = node.outputs[0]
    inner.type, inner.shape = value.type, value.shape
    inner.name = free_name(graph, f"{name}.{_word(value)}")
    value.replace_all_uses_with(inner)
    prepend(graph, [node])


def _bind_output(graph: ir.Model, number: int, value: ir.Value, binding: Binding) -> None:
    if value.is_graph_input():
        raise UsageError(f"output '{value.name}' cannot be {binding.dtype}: it is an input too")
    name, maker = value.name or "", value.producer()
    value.name = free_name(graph, f"{name}.{_word(value)}")
    if maker is not None and binding.scale is not None:
        codes = maker.inputs[0] if _int8_scale(maker, "DequantizeLinear") == binding.scale else None
        if codes is not None and codes.producer() is not None and not codes.is_graph_output():
            codes.name = name
            graph.graph.outputs[number] = codes
            if not value.uses():
                graph.graph.remove(maker, safe=True)
            return
    node = _conversion(
        graph, value, _type(binding), binding, operator="QuantizeLinear", name=f"{name}.to_{binding.dtype}"
    )
    result = node.outputs[0]
    result.type, result.shape, result.name = ir.TensorType(_type(binding)), value.shape, name
    graph.graph.append(node)
    graph.graph.outputs[number] = result


def _conversion(
    graph: ir.Model,
    source: ir.Value,
    to: ir.DataType | None,
    binding: Binding,
    *,
    operator: str,
    name: str,
) -> ir.Node:
    """The node that makes one type of the other: `operator` for codes, else a Cast to `to`."""
    if binding.dtype == "int8" and (source.dtype in _FLOATS or to in _FLOATS):
        if binding.scale is None:
            raise UsageError(f"'{name}' needs the scale of its codes")
        scale = add_constant(graph, f"{name}.scale", np.array(binding.scale, np.float32))
        zero = add_constant(graph, f"{name}.zero_point", np.array(0, np.int8))
        return ir.node(operator, [source, scale, zero], name=free_name(graph, name))
    to = to or ir.DataType.FLOAT
    return ir.node("Cast", [source], {"to": ir.AttrInt64("to", to.value)}, name=free_name(graph, name))


def _pass_codes(graph: ir.Model, node: ir.Node, codes: ir.Value) -> None:
    """Let what reads the codes that a QuantizeLinear makes read these."""
    made = node.outputs[0]
    if made.is_graph_output():
        return
    made.replace_all_uses_with(codes)
    graph.graph.remove(node, safe=True)


def _int8_scale(node: ir.Node | None, op_type: str) -> float | None:
    """The scale of a node of the main graph that converts on one symmetric int8 grid."""
    if node is None or not is_operator(node, op_type) or len(node.inputs) < 3:
        return None
    scale, zero = constant_of(node.inputs[1]), constant_of(node.inputs[2])
    if scale is None or zero is None or scale.size != 1 or zero.dtype != np.int8 or np.any(zero):
        return None
    return float(scale.reshape(-1)[0])


def _type(binding: Binding) -> ir.DataType:
    return ir.DataType["FLOAT" if binding.dtype == "float32" else binding.dtype.upper()]


def _word(value: ir.Value) -> str:
    return "float32" if value.dtype is None else str(value.dtype.numpy())
