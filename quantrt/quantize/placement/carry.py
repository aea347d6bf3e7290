# SPDX-License-Identifier: Apache-2.0
"""Codes carried on: pools and concatenations join their inputs, what only moves values moves codes."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.quantize.patterns.attention import transposed_attention
from quantrt.quantize.patterns.behind_conv import is_mean_of_images
from quantrt.quantize.patterns.concats import joins_other_axes
from quantrt.quantize.patterns.fused_output import fused_output
from quantrt.quantize.placement.operands import is_activation
from quantrt.quantize.placement.placed import Placed, node_name, value_name

__all__ = ["carry", "join"]


def join(placed: Placed, node: ir.Node) -> None:
    """Quantize a pool or a concatenation whose inputs are quantized for others anyway."""
    rule = placed.rule(node)
    if rule is None or not rule.only_if_quantized or node.op_type == "Add":
        return
    if placed.refusal(node, rule) is not None or node_name(node) in placed.int8:
        return
    if node.op_type == "ReduceMean" and not is_mean_of_images(node):
        placed.reasons[node_name(node)] = "no mean over the pixels of an image"
        return
    # A target without quantized outputs joins a concatenation from behind, in `carry`.
    wanted = len(node.inputs) if rule.passes else 1
    inputs = [value for value in node.inputs[:wanted] if placed.is_quantized(value)]
    if len(inputs) < wanted or (rule.passes and not placed.target.quantizes_outputs):
        placed.reasons[node_name(node)] = "its input is not quantized"
        return
    if (rule.output or rule.passes) and fused_output(node).is_graph_output():
        placed.reasons[node_name(node)] = "its result is an output of the model"
        return
    for index in range(wanted):
        placed.use(node, index)
    if rule.passes:
        placed.make(node.outputs[0])
        placed.groups.append({value_name(value) for value in (*inputs, node.outputs[0])})
    placed.became_int8(node, rule, "its input is 8-bit anyway")


def carry(placed: Placed) -> None:
    """Move quantization above value-preserving operators, or share one grid across them."""
    passing = [node for node in placed.graph if (rule := placed.rule(node)) is not None and rule.passes]
    if placed.target.quantizes_outputs:
        for node in passing:
            _share(placed, node)
        _read_what_is_made(placed)
    else:
        for node in reversed(passing):
            _hoist(placed, node)
    for node in passing:
        if node_name(node) not in placed.excluded and node_name(node) not in placed.int8:
            placed.reasons[node_name(node)] = "moves values: runs in the precision of its input"


def _share(placed: Placed, node: ir.Node) -> None:
    source, result = node.inputs[0], node.outputs[0]
    if node.op_type == "Concat" or not is_activation(source) or node_name(node) in placed.excluded:
        return
    pair = {value_name(source), value_name(result)}
    only_leaves = result.is_graph_output() and value_name(result) not in placed.values
    if pair & placed.values and not only_leaves:
        placed.use(node, 0)
        placed.make(result)
        placed.groups.append(pair)


def _read_what_is_made(placed: Placed) -> None:
    """Every reader of a value that a kernel makes in 8 bits sees the rounded one."""
    for node in placed.graph:
        for index, value in enumerate(node.inputs):
            if value is not None and value_name(value) in placed.made:
                placed.uses[(node_name(node), index)] = value


def _hoist(placed: Placed, node: ir.Node) -> None:
    """Quantize the inputs of `node` instead of its output, when every reader wants codes."""
    result, data = node.outputs[0], range(len(node.inputs) if node.op_type == "Concat" else 1)
    edges = [(node_name(consumer), index) for consumer, index in result.uses()]
    kept = result.is_graph_output() or node_name(node) in placed.excluded or _moves_short_rows(placed, node)
    leaves = any(consumer.graph is not placed.graph for consumer, _ in result.uses())
    if not edges or kept or leaves or not all(edge in placed.uses for edge in edges):
        return
    rule, grid = placed.rule(node), placed.grids.get(value_name(result))
    is_other = rule is not None and rule.grid not in (None, grid)
    if is_other or not all(is_activation(node.inputs[index]) for index in data):
        return
    wants_symmetric = any(edge in placed.symmetric for edge in edges) or joins_other_axes(node, placed.target)
    for edge in edges:
        del placed.uses[edge]
    placed.values.discard(value_name(result))
    for index in data:
        placed.use(node, index)
        if grid is not None:
            placed.grids[value_name(node.inputs[index])] = grid
        if wants_symmetric:
            placed.symmetric.add((node_name(node), index))
    # The result's too: a concatenation behind this node may share its grid with others.
    placed.groups.append({value_name(value) for value in (result, *(node.inputs[index] for index in data))})


def _moves_short_rows(placed: Placed, node: ir.Node) -> bool:
    """Whether attention's output is moved in rows that the target moves faster as floats."""
    made = transposed_attention(node, placed.attention)
    size = made.shape[-1] if made is not None and made.shape else None
    return placed.target.row_bytes > 1 and isinstance(size, int) and size % placed.target.row_bytes != 0
