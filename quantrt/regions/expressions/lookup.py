# SPDX-License-Identifier: Apache-2.0
"""Gather on the rows of a constant table, an embedding, as an operand of an expression.

The operand reads its table where the elements are needed: rows are never copied out first, so that a sum of
embeddings and the norm behind it are one pass over memory.
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import int_attribute, is_operator
from quantrt.regions.expressions.builder import ExpressionBuilder, Register
from quantrt.regions.expressions.from_onnx import STORED_TYPES
from quantrt.regions.facts.facts import Facts, is_constant

__all__ = [
    "LARGE_TABLE",
    "MAX_TABLE_ROWS",
    "emit_lookup",
    "index_of",
    "is_large",
    "is_lookup",
    "table_of",
    "why_not_lookup",
]

MAX_TABLE_ROWS = 1 << 24
"""Row numbers pass through float32, as all that expressions read; it counts exactly up to here."""

LARGE_TABLE = 1 << 20
"""Elements from which a table may become codes: a smaller one does not show in the size of an engine."""

MAX_ROW = 1 << 20
"""Elements of a row: beyond, the Gather is hardly an embedding."""


def is_lookup(node: ir.Node) -> bool:
    """Whether a node picks rows of a constant float matrix by numbers that are computed or given."""
    if not is_operator(node, "Gather") or len(node.inputs) != 2:
        return False
    table, index = node.inputs
    if table is None or index is None or not is_constant(table) or is_constant(index):
        return False
    is_matrix = table.shape is not None and len(table.shape) == 2
    return is_matrix and table.dtype in STORED_TYPES[:3] and int_attribute(node, "axis", 0) in (0, -2)


def why_not_lookup(node: ir.Node, facts: Facts) -> str | None:
    """Why a node for which `is_lookup` holds cannot be an operand of an expression; None when it can."""
    index, rows, columns = index_of(node), *_sizes(node)
    if not facts.is_activation(index):
        return "its row numbers live on the CPU"
    if index.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return "its row numbers are no integers of 32 or 64 bits"
    if facts.sizes.shape(index) is None:
        return "the rank of its row numbers is not known"
    if not 0 < rows <= MAX_TABLE_ROWS or not 0 < columns <= MAX_ROW:
        return f"a table of {rows} rows of {columns}"
    return None


def table_of(node: ir.Node) -> ir.Value:
    """The constant that a lookup picks rows of."""
    table = node.inputs[0]
    if table is None:
        raise ValueError(f"'{node.name}' has no table")
    return table


def index_of(node: ir.Node) -> ir.Value:
    """The numbers of the rows that a lookup picks."""
    index = node.inputs[1]
    if index is None:
        raise ValueError(f"'{node.name}' has no row numbers")
    return index


def emit_lookup(builder: ExpressionBuilder, node: ir.Node) -> Register:
    """The register of the picked rows, behind the operand of their numbers."""
    name = node.name or ""
    builder.operand("tensor", index_of(node).name or "", (name, 1), is_shared=False)
    return builder.operand("lookup", table_of(node).name or "", (name, 0), is_shared=False)


def _sizes(node: ir.Node) -> tuple[int, int]:
    shape = table_of(node).shape
    rows, columns = shape.numpy() if shape is not None else (0, 0)
    return rows, columns


def is_large(node: ir.Node) -> bool:
    """Whether the table of a lookup may become codes, with scales beside them."""
    rows, columns = _sizes(node)
    return rows * columns >= LARGE_TABLE
