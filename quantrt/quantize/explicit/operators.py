# SPDX-License-Identifier: Apache-2.0
"""QLinearConv and QLinearMatMul, written as DequantizeLinear -> float operator -> QuantizeLinear."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, constant_of, is_operator
from quantrt.quantize.explicit.picks import spell_picked_codes

__all__ = ["spell_integer_operators"]


def spell_integer_operators(graph: ir.Model) -> int:
    """Replace every QLinearConv and QLinearMatMul whose scales are constant; how many.

    The float operator keeps the node's name. So are codes that plain operators multiply by their scales.
    """
    count = spell_picked_codes(graph)
    for node in list(graph.graph):
        if not is_operator(node, "QLinearConv", "QLinearMatMul") or not _is_plain(node):
            continue
        _spell(graph, node)
        count += 1
    return count


def _is_plain(node: ir.Node) -> bool:
    """Whether scales and zero points are constants, and those of activations numbers."""
    grids = [constant_of(node.inputs[index]) for index in (1, 2, 4, 5, 6, 7)]
    bias = node.inputs[8] if len(node.inputs) > 8 else None
    if any(grid is None for grid in grids) or (bias is not None and constant_of(bias) is None):
        return False
    return all(grid is not None and grid.size == 1 for grid in (*grids[:2], *grids[4:]))


def _spell(graph: ir.Model, node: ir.Node) -> None:
    name, output = node.name or "", node.outputs[0]
    is_conv = node.op_type == "QLinearConv"
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = node.inputs[:8]
    rank = len(w.shape) if w is not None and w.shape is not None else 2
    made = [
        _node("DequantizeLinear", [x, x_scale, x_zero], f"{name}_dequantize", {}),
        _node(
            "DequantizeLinear", [w, w_scale, w_zero], f"{name}_weight", {"axis": 0 if is_conv else rank - 1}
        ),
    ]
    if is_conv and len(node.inputs) > 8 and node.inputs[8] is not None:
        made.append(_bias(graph, node))
    operands = [part.outputs[0] for part in made]
    result = ir.node("Conv" if is_conv else "MatMul", operands, name=name)
    result.attributes.update(node.attributes)
    result.outputs[0].name = f"{output.name}_unrounded"
    result.outputs[0].shape, result.outputs[0].type = output.shape, ir.TensorType(ir.DataType.FLOAT)
    rounded = _node("QuantizeLinear", [result.outputs[0], y_scale, y_zero], f"{name}_quantize", {})
    codes = rounded.outputs[0]
    codes.shape, codes.type, made[0].outputs[0].shape = output.shape, output.type, x.shape if x else None
    graph.graph.insert_before(node, [*made, result, rounded])
    text = output.name
    output.name = None
    output.replace_all_uses_with(codes, replace_graph_outputs=True)
    codes.name = text
    graph.graph.remove(node, safe=True)


def _bias(graph: ir.Model, node: ir.Node) -> ir.Node:
    """The int32 bias, in units of the scales of input and weight."""
    x_scale, w_scale = constant_of(node.inputs[1]), constant_of(node.inputs[4])
    if x_scale is None or w_scale is None:  # _is_plain saw them
        raise ValueError(f"'{node.name}' has no constant scales")
    product = x_scale.astype(np.float32).reshape(()) * w_scale.astype(np.float32)
    scale = add_constant(
        graph, f"{node.name}_bias_scale", product.reshape(-1) if product.size > 1 else product.reshape(())
    )
    return _node("DequantizeLinear", [node.inputs[8], scale], f"{node.name}_bias", {"axis": 0})


def _node(op_type: str, inputs: list[ir.Value | None], name: str, attributes: dict[str, int]) -> ir.Node:
    node = ir.node(op_type, inputs, attributes=attributes, name=name)
    node.outputs[0].name = f"{name}_output"
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    return node
