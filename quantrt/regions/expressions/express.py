# SPDX-License-Identifier: Apache-2.0
"""Nodes that are elementwise or reduce rows, as one expression."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from quantrt.ir.edit import constant_of
from quantrt.regions.expressions.builder import ExpressionBuilder, Register
from quantrt.regions.expressions.from_onnx import emit_elementwise, why_not_elementwise
from quantrt.regions.expressions.lookup import emit_lookup, index_of, is_lookup, why_not_lookup
from quantrt.regions.expressions.row_operators import emit_row_operator, is_row_operator, why_not_row_operator
from quantrt.regions.facts.facts import Facts

__all__ = ["emit_nodes", "operands_of", "read", "why_not_expressible"]


def why_not_expressible(node: ir.Node, facts: Facts) -> str | None:
    """Why a node cannot be instructions of an expression; None when it can."""
    if is_row_operator(node):
        return why_not_row_operator(node, facts)
    if is_lookup(node):
        return why_not_lookup(node, facts)
    return why_not_elementwise(node, facts)


def operands_of(node: ir.Node) -> tuple[ir.Value | None, ...]:
    """The inputs that an expression reads: neither the axes of a reduction, nor a table, nor places."""
    if is_lookup(node):
        return (index_of(node),)
    is_of_one = is_row_operator(node) and node.op_type.startswith(("Reduce", "Gather"))
    values = tuple(node.inputs[:1] if is_of_one else node.inputs)
    return tuple(None if value is None or not value.name else value for value in values)


def emit_nodes(
    facts: Facts, positions: Iterable[int], builder: ExpressionBuilder, registers: dict[str, Register]
) -> None:
    """Write nodes behind what the builder has, in topological order.

    Args:
        registers: of values by name; the results are added.
    """
    for position in sorted(positions):
        node = facts.nodes[position]
        if is_lookup(node):
            registers[node.outputs[0].name or ""] = emit_lookup(builder, node)
            continue
        args = [
            None if value is None else read(value, (node.name or "", place), builder, registers)
            for place, value in enumerate(operands_of(node))
        ]
        if is_row_operator(node):
            result = emit_row_operator(builder, node, [arg for arg in args if arg is not None])
        else:
            result = emit_elementwise(builder, node, args)
        registers[node.outputs[0].name or ""] = result


def read(
    value: ir.Value, use: tuple[str, int], builder: ExpressionBuilder, registers: dict[str, Register]
) -> Register:
    """The register of a value: computed here, a number, a constant, or an activation."""
    name = value.name or ""
    if name in registers:
        return registers[name]
    array = constant_of(value)
    if array is None:
        return builder.operand("tensor", name, use)
    if array.size == 1:
        return builder.const(float(array.reshape(-1)[0]))
    return builder.operand("constant", name, use)
