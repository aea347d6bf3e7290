# SPDX-License-Identifier: Apache-2.0
"""Constants behind DequantizeLinear become float constants again; their codes are kept beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, constant_of, is_operator, taken_names
from quantrt.quantize.explicit.grids import constant_params, recentred
from quantrt.quantize.patterns.tables import is_table_rule, why_no_table
from quantrt.quantize.placement.operands import is_plain_gemm, weight_axis
from quantrt.quantize.quantized_model import Use
from quantrt.quantize.scales.qparams import QParams, QuantizedTensor, quantize_array
from quantrt.quantize.target import Target

__all__ = ["choose_weights", "dequantize_constants"]

Array = np.ndarray[Any, Any]


def dequantize_constants(graph: ir.Model) -> tuple[dict[ir.Value, QuantizedTensor], dict[str, str]]:
    """Replace every DequantizeLinear of a constant, or of a quantized one, by a float constant.

    A Transpose of such a constant is carried out too.

    Returns:
        The codes behind each new constant, and a phrase per node that was replaced or could not be.
    """
    codes: dict[ir.Value, QuantizedTensor] = {}
    reasons: dict[str, str] = {}
    taken = taken_names(graph)
    for node in list(graph.graph):
        if any(output.is_graph_output() for output in node.outputs):
            continue
        if is_operator(node, "QuantizeLinear") and constant_of(node.inputs[0]) is not None:
            reasons[node.name or ""] = "rounds a constant"
            continue
        if is_operator(node, "DequantizeLinear"):
            found = _stored(node)
        elif is_operator(node, "Transpose") and node.inputs[0] in codes:
            found = _transposed(node, codes[node.inputs[0]])
        else:
            continue
        if isinstance(found, QuantizedTensor):
            value = _replace(graph, node, found.dequantize(), taken)
            codes[value] = found
            reasons[node.name or ""] = "stored as a constant"
        elif found is not None:
            reasons[node.name or ""] = found
    return codes, reasons


def choose_weights(
    graph: ir.Graph, target: Target, codes: Mapping[ir.Value, QuantizedTensor]
) -> tuple[dict[Use, QuantizedTensor], dict[str, str]]:
    """Weights that a product can multiply as they are stored, by edge.

    Returns:
        The weights, and per product of the target's rules without one the reason.
    """
    weights: dict[Use, QuantizedTensor] = {}
    reasons: dict[str, str] = {}
    for node in graph:
        rule = target.rule(node.op_type) if is_operator(node, node.op_type) else None
        if rule is None or rule.weight is None:
            continue
        weight = node.inputs[rule.weight]
        stored = codes.get(weight) if weight is not None else None
        fitted = None if stored is None else recentred(stored)
        no_table = why_no_table(node, rule) if is_table_rule(rule) else None
        if no_table is not None:
            reasons[node.name or ""] = no_table
        elif weight is not None and weight.const_value is None:
            reasons[node.name or ""] = "a product of two activations has no 8-bit kernel"
        elif stored is None:
            reasons[node.name or ""] = "its weight is not quantized"
        elif fitted is None:
            reasons[node.name or ""] = "its weight has codes beyond int8 once its zero point is taken off"
        elif fitted.qparams.dtype != (wanted := target.weight_codes(node.op_type)[0]):
            reasons[node.name or ""] = f"its weight is of type {fitted.qparams.dtype.name}, not {wanted.name}"
        elif node.op_type == "Gemm" and not is_plain_gemm(node):
            reasons[node.name or ""] = "Gemm with transA, alpha or beta has no 8-bit kernel"
        elif node.op_type == "MatMul" and fitted.codes.ndim != 2:
            reasons[node.name or ""] = "its weight is no matrix"
        elif fitted.qparams.axis not in (None, weight_axis(node, rule)):
            reasons[node.name or ""] = "its weight has scales along another axis than its output channels"
        else:
            weights[(node.name or "", rule.weight)] = fitted
    return weights, reasons


def _stored(node: ir.Node) -> QuantizedTensor | str | None:
    """The constant that a DequantizeLinear reads; why it is not understood; None for an activation."""
    source = node.inputs[0]
    array = constant_of(source)
    if array is not None:
        params = constant_params(node, array.shape)
        return params if isinstance(params, str) else QuantizedTensor(array, params)
    maker = source.producer() if source is not None else None
    if maker is None or not is_operator(maker, "QuantizeLinear"):
        return None
    values = constant_of(maker.inputs[0])
    if values is None:
        return None
    params = constant_params(maker, values.shape)
    if isinstance(params, str):
        return params
    if not _same(maker.inputs, node.inputs):
        return "it reads codes on another grid than they are written on"
    return QuantizedTensor(quantize_array(values, params), params)


def _same(one: Iterable[ir.Value | None], other: Iterable[ir.Value | None]) -> bool:
    """Whether two nodes have equal scales and zero points."""
    pairs = zip(list(one)[1:], list(other)[1:], strict=False)
    return all(a is b or np.array_equal(_array(a), _array(b)) for a, b in pairs)


def _array(value: ir.Value | None) -> Array:
    array = constant_of(value)
    return np.zeros(0) if array is None else array


def _transposed(node: ir.Node, tensor: QuantizedTensor) -> QuantizedTensor:
    attribute = node.attributes.get("perm")
    rank = tensor.codes.ndim
    order = tuple(range(rank))[::-1] if attribute is None else tuple(attribute.as_ints())
    params = tensor.qparams
    axis = None if params.axis is None else order.index(params.axis)
    moved = QParams(params.scale, params.zero_point, params.dtype, axis, params.qmin, params.qmax)
    return QuantizedTensor(np.ascontiguousarray(tensor.codes.transpose(order)), moved)


def _replace(graph: ir.Model, node: ir.Node, array: Array, taken: set[str]) -> ir.Value:
    """A constant in the place of a node's output, under its name where that is free."""
    output = node.outputs[0]
    name = output.name or "constant"
    output.name = None  # frees it
    taken.discard(name)
    value = add_constant(graph, name, array, taken)
    output.replace_all_uses_with(value)
    graph.graph.remove(node, safe=True)
    return value
