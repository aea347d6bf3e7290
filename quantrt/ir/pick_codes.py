# SPDX-License-Identifier: Apache-2.0
"""Rows of a table of codes, dequantized behind the Gather that picks them instead of before it.

    Gather(DequantizeLinear(codes, scale, axis=0), i)  ->  Cast(Gather(codes, i)) * Gather(scale[:, None], i)

ONNX Runtime computes what stands on the left: every row in every run, and a float table beside the codes
(1.31). OpenVINO makes a float table of the left side where other nodes are quantized, as it compiles: four
times the memory, in the same time (2026.4). The results are equal bit for bit. One scale for all rows stays a
DequantizeLinear, behind the Gather.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import (
    add_constant,
    constant_of,
    int_attribute,
    is_operator,
    remove_constants,
    take_place,
    taken_names,
)

__all__ = ["pick_codes"]

MATRIX = 2


def pick_codes(graph: ir.Model) -> ir.Model:
    """The graph, or a copy of it where rows of codes are picked."""
    if not any(_picks(graph.graph)):
        return graph
    copy = clone(graph)
    taken = taken_names(copy)
    columns: dict[str, ir.Value] = {}
    for pick, table in list(_picks(copy.graph)):
        if len(_shape_of(table.inputs[1])):
            _scale_rows(copy, pick, table, columns, taken)
        else:
            _dequantize_rows(copy, pick, table)
        if not table.outputs[0].uses() and not table.outputs[0].is_graph_output():
            constants = tuple(table.inputs)
            copy.graph.remove(table, safe=True)
            remove_constants(copy, constants)
    return copy


def _picks(graph: ir.Graph) -> Iterator[tuple[ir.Node, ir.Node]]:
    """Each Gather of rows of a dequantized matrix, with the node that dequantizes it."""
    for node in graph:
        if is_operator(node, "Gather") and int_attribute(node, "axis", 0) in (0, -MATRIX):
            source = node.inputs[0]
            table = None if source is None else source.producer()
            if table is not None and table.graph is graph and _is_table(table):
                yield node, table


def _is_table(node: ir.Node) -> bool:
    """Whether a node dequantizes a constant matrix: by rows and without zero points, or on one scale."""
    if not is_operator(node, "DequantizeLinear") or int_attribute(node, "block_size", 0):
        return False
    codes, scale = constant_of(node.inputs[0]), constant_of(node.inputs[1])
    zero = constant_of(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else None
    if codes is None or scale is None or codes.ndim != MATRIX or codes.dtype not in (np.int8, np.uint8):
        return False
    if scale.dtype != np.float32 or (zero is None and len(node.inputs) > 2 and node.inputs[2] is not None):
        return False
    is_by_rows = scale.shape == codes.shape[:1] and int_attribute(node, "axis", 1) in (0, -MATRIX)
    return not scale.ndim or (is_by_rows and (zero is None or not zero.any()))


def _shape_of(value: ir.Value | None) -> tuple[int, ...]:
    array = constant_of(value)
    return () if array is None else array.shape


def _scale_rows(
    graph: ir.Model, pick: ir.Node, table: ir.Node, columns: dict[str, ir.Value], taken: set[str]
) -> None:
    """Pick codes and their scales, and multiply them."""
    scale, index, rows = table.inputs[1], pick.inputs[1], pick.outputs[0]
    array = constant_of(scale)
    if scale is None or array is None:
        return
    name = scale.name or ""
    if name not in columns:
        columns[name] = add_constant(graph, f"{name}_column", array[:, None], taken)
    codes = ir.node("Gather", [table.inputs[0], index], attributes={"axis": 0}, name=f"{pick.name}.codes")
    scales = ir.node("Gather", [columns[name], index], attributes={"axis": 0}, name=f"{pick.name}.scales")
    floats = ir.node(
        "Cast", [codes.outputs[0]], attributes={"to": ir.DataType.FLOAT}, name=f"{pick.name}.cast"
    )
    product = ir.node("Mul", [floats.outputs[0], scales.outputs[0]], name=pick.name)
    product.metadata_props.update(pick.metadata_props)
    for node in (codes, scales, floats):
        node.outputs[0].name = f"{rows.name}.{(node.name or '').rpartition('.')[2]}"
    take_place(graph, pick, [codes, scales, floats, product], product.outputs[0])


def _dequantize_rows(graph: ir.Model, pick: ir.Node, table: ir.Node) -> None:
    """Pick codes, and dequantize them as the table was."""
    rows = pick.outputs[0]
    codes = ir.node(
        "Gather", [table.inputs[0], pick.inputs[1]], attributes={"axis": 0}, name=f"{pick.name}.codes"
    )
    codes.outputs[0].name = f"{rows.name}.codes"
    floats = ir.node("DequantizeLinear", [codes.outputs[0], *table.inputs[1:]], name=pick.name)
    floats.metadata_props.update(pick.metadata_props)
    take_place(graph, pick, [codes, floats], floats.outputs[0])
