# SPDX-License-Identifier: Apache-2.0
"""Embeddings: constant tables of which nodes pick rows, kept as codes with a scale for every row."""

from __future__ import annotations

import math

import onnx_ir as ir

from quantrt.ir.edit import int_attribute
from quantrt.quantize.target import OpRule

__all__ = ["SHOWN_TABLE", "is_table_rule", "why_no_table", "why_not_table"]

SHOWN_TABLE = 1 << 16
"""Elements from which a table is codes on a CPU: a smaller one does not show in the size of an engine."""

AXIS_OPSET = 13
"""The first opset whose DequantizeLinear has an axis."""


def is_table_rule(rule: OpRule) -> bool:
    """Whether a rule is of an operator that picks rows: it has a weight, and no activations beside it."""
    return rule.weight is not None and not rule.activations


def why_not_table(node: ir.Node, rule: OpRule, opset: int) -> str | None:
    """Why the table of a Gather is not worth quantizing, or cannot be; None where it is."""
    reason = why_no_table(node, rule)
    if reason is not None:
        return reason
    table = node.inputs[rule.weight or 0]
    elements = math.prod(table.const_value.shape.numpy()) if table is not None and table.const_value else 0
    if elements < rule.least_elements:
        return f"its table has {elements} elements: too few to gain by"
    return f"opset {opset} has no scale for every row" if opset < AXIS_OPSET else None


def why_no_table(node: ir.Node, rule: OpRule) -> str | None:
    """Why a Gather does not pick rows of a table that could be codes; None when it does."""
    table, index = node.inputs[rule.weight or 0], node.inputs[1]
    tensor = None if table is None or table.is_graph_input() else table.const_value
    if tensor is None:
        return "it picks from an activation"
    if tensor.dtype != ir.DataType.FLOAT or len(tensor.shape) != 2 or int_attribute(node, "axis", 0) % 2:
        return "it does not pick rows of a float32 matrix"
    if index is None or index.const_value is not None or index.shape is None:
        return "which rows it picks is a constant, or of unknown rank"
    return None
