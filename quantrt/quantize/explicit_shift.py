# SPDX-License-Identifier: Apache-2.0
"""Zero points of inputs, taken off behind the products and sums that read them.

sum_k (q[k] - z) * s * w[k, n] = sum_k q[k] * s * w[k, n] - z * s * sum_k w[k, n]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.errors import InternalError
from quantrt.ir.edit import add_constant, constant_of, set_constant_input
from quantrt.quantize.explicit_grids import CodeGrid
from quantrt.quantize.operands import weight_axis
from quantrt.quantize.qparams import QuantizedTensor
from quantrt.quantize.target import OpRule

__all__ = ["take_off_shift", "take_off_sum_shift"]

BIAS = 2

Array = np.ndarray[Any, Any]


def take_off_sum_shift(graph: ir.Model, node: ir.Node, grids: Sequence[CodeGrid]) -> None:
    """Make a sum of `x + zero_point * scale` the sum of x, for each grid one of its inputs is on."""
    shift = sum(-float(grid.zero_point) * float(grid.scale) for grid in grids)
    _add_behind(graph, node, np.asarray(shift, np.float32))


def take_off_shift(
    graph: ir.Model, node: ir.Node, rule: OpRule, weight: QuantizedTensor, grid: CodeGrid
) -> None:
    """Make a product of `x + zero_point * scale` the product of x: by its bias, or by an Add behind it."""
    axis = weight_axis(node, rule)
    if axis is None:
        raise InternalError(f"the weight of '{node.name}' has no channel axis")
    rows = np.moveaxis(weight.dequantize(), axis, 0)
    sums = rows.reshape(rows.shape[0], -1).sum(axis=1, dtype=np.float64)
    shift = -float(grid.zero_point) * float(grid.scale) * sums
    bias = node.inputs[BIAS] if len(node.inputs) > BIAS else None
    array = constant_of(bias)
    if node.op_type == "MatMul" or (bias is not None and array is None):
        _add_behind(graph, node, shift.astype(np.float32))
        return
    total = shift if array is None else array.astype(np.float64) + shift
    set_constant_input(graph, node, BIAS, total.astype(np.float32), f"{node.name}_bias")


def _add_behind(graph: ir.Model, node: ir.Node, shift: Array) -> None:
    output = node.outputs[0]
    name = output.name
    add = ir.node(
        "Add", [output, add_constant(graph, f"{node.name}_shift", shift)], name=f"{node.name}_shifted"
    )
    result = add.outputs[0]
    result.shape, result.type = output.shape, output.type
    output.name = f"{name}_unshifted"
    output.replace_all_uses_with(result, replace_graph_outputs=True)
    add.replace_input_with(0, output)
    result.name = name
    graph.graph.insert_after(node, add)
