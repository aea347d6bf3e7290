# SPDX-License-Identifier: Apache-2.0
"""Embedding tables with a factor for every column, so that a few large columns do not set the scale of a row.

    table[v, c] = (table[v, c] / largest[c]) * largest[c]          largest[c] = max over v of |table[v, c]|

What stands in the brackets is quantized with a scale for each row; the factors are multiplied behind the
Gather, in floats. In a trained model the rows of frequent words have a few elements far beyond the rest,
which without the factors would set the step of all others.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import add_constant, constant_of, is_operator
from quantrt.quantize.quantized_model import Use

__all__ = ["balance_like", "balance_tables"]

COLUMNS = ".columns"
"""Behind the name of a Gather: of the Mul that multiplies by the factors."""


def balance_tables(graph: ir.Model, weights: Mapping[Use, int | None]) -> ir.Model:
    """A clone of a float graph whose quantized tables have columns of equal size; the graph without such.

    Values keep their names, so that a placement for the graph is one for the clone.

    Args:
        weights: axis of the scales of each quantized constant operand; tables with one scale stay.
    """
    names = [node for (node, _), axis in weights.items() if axis is not None]
    picks = [node.name for node in graph.graph if is_operator(node, "Gather") and node.name in names]
    if not picks:
        return graph
    balanced = clone(graph)
    nodes = {node.name: node for node in balanced.graph}
    made: dict[str, tuple[ir.Value, ir.Value]] = {}
    for name in picks:
        _balance(balanced, nodes[name], made)
    return balanced


def balance_like(floats: ir.Model, quantized: ir.Model) -> ir.Model:
    """A clone of a float graph with the tables balanced that are so in what was quantized of it."""
    names = {(node.name or "").removesuffix(COLUMNS) for node in quantized.graph if _is_factor(node)}
    return balance_tables(floats, {(name, 0): 0 for name in names})


def _is_factor(node: ir.Node) -> bool:
    """Whether a node multiplies rows that were picked by the factors of their columns."""
    picked = node.inputs[0].producer() if is_operator(node, "Mul") and node.inputs[0] is not None else None
    return picked is not None and is_operator(picked, "Gather") and node.name == f"{picked.name}{COLUMNS}"


def _balance(graph: ir.Model, node: ir.Node, made: dict[str, tuple[ir.Value, ir.Value]]) -> None:
    """Give one Gather a balanced table, and its result the factors of the columns."""
    table = node.inputs[0]
    array = constant_of(table)
    if table is None or array is None:
        return
    name = table.name or ""
    if name not in made:
        largest = np.abs(array).max(axis=0, initial=0.0)
        factors = np.where(largest > 0, largest, 1.0).astype(np.float32)
        made[name] = (
            add_constant(graph, f"{name}.balanced", array / factors),
            add_constant(graph, f"{name}.columns", factors),
        )
    node.replace_input_with(0, made[name][0])
    _multiply(graph, node, made[name][1])


def _multiply(graph: ir.Model, node: ir.Node, factors: ir.Value) -> None:
    """Put a Mul behind a node; its result takes over the name, the readers and the place as an output."""
    result = node.outputs[0]
    product = ir.node("Mul", [result, factors], name=f"{node.name}{COLUMNS}")
    output = product.outputs[0]
    output.shape, output.type = result.shape, result.type
    result.replace_all_uses_with(output, replace_graph_outputs=True)
    product.replace_input_with(0, result)
    output.name, result.name = result.name, f"{result.name}.rows"
    graph.graph.insert_after(node, product)
