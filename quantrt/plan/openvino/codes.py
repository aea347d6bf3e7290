# SPDX-License-Identifier: Apache-2.0
"""Q/DQ nodes as OpenVINO computes them rightly; what they mean stays the same.

Measured with OpenVINO 2026.4 on a CPU:

- pairs of int8 with zero points come out wrong (1.4 dB on a ResNet-20), the same of uint8 do not
- QLinearConv with scales per channel is not imported
- weights in blocks that do not divide their axis are not imported, nor 4-bit weights of convolutions compiled
- pairs of 16 bits come out as noise; they become float operators:
  (clip(rint(x / s), qmin - z, qmax - z)) * s
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, all_names, constant_of, int_attribute, is_operator, take_name
from quantrt.model.passes.remove_unused import remove_unused
from quantrt.model.passes.types.dequantize_narrow import dequantize_narrow
from quantrt.quantize.explicit.operators import spell_integer_operators

__all__ = ["respell_codes"]

CENTRE = 128
"""Of uint8: what int8 codes and their zero points are moved by."""

MATRIX = 2

WIDE = (np.dtype(np.int16), np.dtype(np.uint16))


def respell_codes(graph: ir.Model) -> None:
    """Write otherwise what has to be; in place."""
    if not any(_is_signed(node) or _is_unread(node) or _is_wide(node) for node in graph.graph):
        return
    spell_integer_operators(graph)
    dequantize_narrow(graph, where=_is_unread)
    taken = all_names(graph)
    for node in list(graph.graph):
        if _is_signed(node):
            _make_unsigned(graph, node, taken)
        elif _is_wide(node):
            _spell_in_floats(graph, node, taken)
    remove_unused(graph)


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
    zero = _zero_point(node) if is_operator(node, "QuantizeLinear") else None
    return zero is not None and zero.dtype == np.int8 and bool(zero.any()) and _is_closed(node, zero)


def _is_wide(node: ir.Node) -> bool:
    """Whether a node makes 16-bit codes on one grid that only DequantizeLinear nodes of the grid read."""
    zero = _zero_point(node) if is_operator(node, "QuantizeLinear") else None
    if zero is None or zero.dtype not in WIDE or zero.size != 1 or not _is_closed(node, zero):
        return False
    scales = [constant_of(each.inputs[1]) for each in (node, *_readers(node))]
    first = scales[0]
    return first is not None and all(
        scale is not None and scale.dtype == np.float32 and np.array_equal(scale, first) for scale in scales
    )


def _readers(node: ir.Node) -> list[ir.Node]:
    return [reader for reader, _ in node.outputs[0].uses()]


def _is_closed(node: ir.Node, zero: np.ndarray) -> bool:
    """Whether codes go to DequantizeLinear nodes with the same zero point alone, not out of the model."""
    readers = _readers(node)
    if node.outputs[0].is_graph_output() or not readers:
        return False
    points = [_zero_point(reader) for reader in readers if is_operator(reader, "DequantizeLinear")]
    return len(points) == len(readers) and all(
        point is not None and point.dtype == zero.dtype and np.array_equal(point, zero) for point in points
    )


def _spell_in_floats(graph: ir.Model, quantize: ir.Node, taken: set[str]) -> None:
    """Write a pair of 16 bits as float operators."""
    x, scale, zero = quantize.inputs[0], constant_of(quantize.inputs[1]), _zero_point(quantize)
    if x is None or scale is None or zero is None:
        return
    info, middle = np.iinfo(zero.dtype), int(zero.reshape(()))
    name = quantize.name or ""
    step, low, high = (
        add_constant(graph, f"{name}_{what}", np.asarray(value, np.float32), taken)
        for what, value in (
            ("step", scale.reshape(())),
            ("least", info.min - middle),
            ("most", info.max - middle),
        )
    )
    value = x
    for op_type, others in (("Div", [step]), ("Round", []), ("Clip", [low, high]), ("Mul", [step])):
        node = ir.node(op_type, [value, *others], name=take_name(f"{name}_{op_type.lower()}", taken))
        graph.graph.insert_before(quantize, node)
        made = node.outputs[0]
        made.name, made.shape, made.type = take_name(f"{node.name}_output", taken), x.shape, x.type
        value = made
    for reader in _readers(quantize):
        result = reader.outputs[0]
        if result.is_graph_output():
            reader.op_type = "Identity"
            reader.attributes.clear()
            reader.resize_inputs(1)
            reader.replace_input_with(0, value)
        else:
            result.replace_all_uses_with(value)


def _zero_point(node: ir.Node) -> np.ndarray | None:
    return constant_of(node.inputs[2]) if len(node.inputs) > 2 else None


def _make_unsigned(graph: ir.Model, quantize: ir.Node, taken: set[str]) -> None:
    zero = _zero_point(quantize)
    if zero is None:
        return
    moved = (zero.astype(np.int16) + CENTRE).astype(np.uint8)
    value = add_constant(graph, f"{quantize.name}_unsigned", moved, taken)
    codes = quantize.outputs[0]
    codes.type = ir.TensorType(ir.DataType.UINT8)
    for node in (quantize, *(reader for reader, _ in codes.uses())):
        node.replace_input_with(2, value)
