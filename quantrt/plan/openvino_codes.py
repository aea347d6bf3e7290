# SPDX-License-Identifier: Apache-2.0
"""Q/DQ nodes as OpenVINO computes them rightly; what they mean stays the same.

Measured with OpenVINO 2026.4 on a CPU:

- pairs of int8 with zero points come out wrong (1.4 dB on a ResNet-20), the same of uint8 do not
- QLinearConv with scales per channel is not imported
- weights in blocks that do not divide their axis are not imported, nor 4-bit weights of convolutions compiled
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import add_constant, constant_of, int_attribute, is_operator
from quantrt.model.passes.dequantize_narrow import dequantize_narrow
from quantrt.model.passes.remove_unused import remove_unused
from quantrt.quantize.explicit_operators import spell_integer_operators

__all__ = ["respell_codes"]

CENTRE = 128
"""Of uint8: what int8 codes and their zero points are moved by."""

MATRIX = 2


def respell_codes(graph: ir.Model) -> ir.Model:
    """The graph, or a copy of it where a node has to be written otherwise."""
    if not any(_is_signed(node) or _is_unread(node) for node in graph.graph):
        return graph
    copy = clone(graph)
    spell_integer_operators(copy)
    dequantize_narrow(copy, where=_is_unread)
    for node in list(copy.graph):
        if _is_signed(node):
            _make_unsigned(copy, node)
    remove_unused(copy)
    return copy


def _is_unread(node: ir.Node) -> bool:
    """Whether OpenVINO cannot read a node, though a form of it that it can is known."""
    if is_operator(node, "QLinearConv"):
        scale = constant_of(node.inputs[4])
        return scale is not None and scale.size > 1
    codes = node.inputs[0] if is_operator(node, "DequantizeLinear") else None
    tensor = None if codes is None else codes.const_value
    if tensor is None:
        return False
    shape = tensor.shape.numpy()
    block = int_attribute(node, "block_size", 0)
    if block:
        axis = int_attribute(node, "axis", 1)
        return not -len(shape) <= axis < len(shape) or shape[axis] % block != 0
    return tensor.dtype.bitwidth < 8 and len(shape) != MATRIX


def _is_signed(node: ir.Node) -> bool:
    """Whether a node makes int8 codes with a zero point that only DequantizeLinear nodes of its grid read."""
    if not is_operator(node, "QuantizeLinear") or node.outputs[0].is_graph_output():
        return False
    zero = _zero_point(node)
    readers = [reader for reader, _ in node.outputs[0].uses()]
    if zero is None or zero.dtype != np.int8 or not zero.any() or not readers:
        return False
    points = [_zero_point(reader) for reader in readers if is_operator(reader, "DequantizeLinear")]
    return len(points) == len(readers) and all(
        point is not None and point.dtype == np.int8 and np.array_equal(point, zero) for point in points
    )


def _zero_point(node: ir.Node) -> np.ndarray | None:
    return constant_of(node.inputs[2]) if len(node.inputs) > 2 else None


def _make_unsigned(graph: ir.Model, quantize: ir.Node) -> None:
    zero = _zero_point(quantize)
    if zero is None:
        return
    moved = (zero.astype(np.int16) + CENTRE).astype(np.uint8)
    value = add_constant(graph, f"{quantize.name}_unsigned", moved)
    codes = quantize.outputs[0]
    codes.type = ir.TensorType(ir.DataType.UINT8)
    for node in (quantize, *(reader for reader, _ in codes.uses())):
        node.replace_input_with(2, value)
