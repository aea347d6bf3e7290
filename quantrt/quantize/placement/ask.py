# SPDX-License-Identifier: Apache-2.0
"""Compute nodes and residual sums ask for 8-bit inputs, as the rules of the target say."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.quantize.patterns.behind_conv import before_activation, is_inside_activation, is_mean_of_images
from quantrt.quantize.patterns.fused_output import fused_output
from quantrt.quantize.patterns.tables import is_table_rule, why_not_table
from quantrt.quantize.placement.operands import (
    is_activation,
    is_float,
    is_per_image,
    is_plain_gemm,
    is_spread,
    weight_axis,
)
from quantrt.quantize.placement.placed import GATE, Placed, node_name
from quantrt.quantize.target import OpRule

__all__ = ["ask"]


def ask(placed: Placed, node: ir.Node) -> None:
    """Quantize the inputs of a compute node or a residual sum."""
    rule = placed.rule(node)
    refusal = placed.refusal(node, rule)
    if refusal is not None or rule is None:
        placed.reasons[node_name(node)] = refusal or "its input is not quantized"
        if rule is not None and refusal == GATE and placed.target.codes_of_gates:
            _store_weight(placed, node, rule)
    elif node.op_type == "Add":
        _ask_residual(placed, node, rule)
    elif rule.behind_product:
        _ask_mean(placed, node, rule)
    elif is_table_rule(rule):
        _ask_table(placed, node, rule)
    elif rule.weight is not None:
        _ask_compute(placed, node, rule)


def _ask_compute(placed: Placed, node: ir.Node, rule: OpRule) -> None:
    indices, refusal = _operands(placed, node, rule)
    if refusal is not None:
        placed.reasons[node_name(node)] = refusal
        return
    if rule.per_token and indices == (0,):
        placed.per_token.add((node_name(node), 0))
        _store_weight(placed, node, rule)
        placed.int8.add(node_name(node))
        placed.reasons[node_name(node)] = "each row that it multiplies has a scale of its own"
        return
    for index in indices:
        placed.use(node, index)
        if rule.symmetric and indices != (0,):
            placed.symmetric.add((node_name(node), index))
    if indices == (0,):
        weight = (node_name(node), rule.weight or 0)
        placed.weights[weight] = weight_axis(node, rule)
        if rule.bias is not None:  # also where there is none yet: correcting it may make one
            placed.biases[(node_name(node), rule.bias)] = ((node_name(node), 0), weight)
    placed.became_int8(node, rule, "it multiplies 8-bit codes")


def _store_weight(placed: Placed, node: ir.Node, rule: OpRule) -> None:
    """Codes of the weight of what multiplies floats."""
    if rule.weight is not None and _operands(placed, node, rule) == ((0,), None):
        placed.weights[(node_name(node), rule.weight)] = weight_axis(node, rule)


def _ask_table(placed: Placed, node: ir.Node, rule: OpRule) -> None:
    refusal = why_not_table(node, rule, placed.opset)
    placed.reasons[node_name(node)] = refusal or "8-bit table: rows are dequantized where they are read"
    if refusal is None:
        placed.weights[(node_name(node), rule.weight or 0)] = rule.weight_axis
        placed.int8.add(node_name(node))


def _operands(placed: Placed, node: ir.Node, rule: OpRule) -> tuple[tuple[int, ...], str | None]:
    """Which inputs of a convolution or product are quantized activations; or why it stays float."""
    if node.op_type == "Gemm" and not is_plain_gemm(node):
        return (), "Gemm with transA, alpha or beta has no 8-bit kernel"
    if rule.only_spread and not is_spread(node):
        return (), "its windows overlap, or it has groups: no 8-bit kernel"
    if not is_activation(node.inputs[0]):
        return (), "its first input is a constant or not float32"
    weight_index = rule.weight or 0
    weight = node.inputs[weight_index]
    if weight is not None and weight.const_value is not None and is_float(weight):
        return (0,), None
    if weight_index not in rule.activations or not is_activation(weight):
        return (), "its weight is not a float32 constant"
    if node_name(node) not in placed.attention:
        return (), "product of two activations outside softmax attention: ranges too wide"
    return rule.activations, None


def _ask_residual(placed: Placed, node: ir.Node, rule: OpRule) -> None:
    name = node_name(node)
    if not all(is_activation(value) for value in node.inputs) or node.inputs[0] is node.inputs[1]:
        placed.reasons[name] = "adds a constant, or a value to itself"
        return
    branches = [_is_int8_branch(placed, value) for value in node.inputs]
    if placed.target.residual == "none" or not any(branches) or is_inside_activation(node):
        placed.reasons[name] = "not the residual sum of an 8-bit convolution"
        return
    if rule.output and fused_output(node).is_graph_output():
        placed.reasons[name] = "its result is an output of the model"
        return
    if placed.target.residual == "skip" and any(map(is_per_image, node.inputs)):
        placed.reasons[name] = "adds one number to all pixels of a channel"
        return
    if placed.target.residual == "both":
        indices = [0, 1]
    elif all(branches):
        # Projection shortcut: the branch computed last is fused, the other one is read back.
        order = [_position(placed, value) for value in node.inputs]
        indices = [0] if order[0] < order[1] else [1]
    else:
        indices = [branches.index(False)]
    for index in indices:
        placed.use(node, index)
        if rule.symmetric:
            placed.symmetric.add((name, index))
    placed.became_int8(node, rule, "residual sum of an 8-bit convolution")


def _ask_mean(placed: Placed, node: ir.Node, rule: OpRule) -> None:
    source = node.inputs[0]
    is_alone = source is not None and len(source.uses()) == 1 and not source.is_graph_output()
    if is_alone and is_mean_of_images(node) and _is_made_in_codes(placed, before_activation(source)):
        placed.use(node, 0)
        placed.became_int8(node, rule, "an 8-bit convolution makes its input")


def _is_made_in_codes(placed: Placed, value: ir.Value | None) -> bool:
    """Whether an 8-bit convolution makes a value, or the sum that is computed in its kernel."""
    producer = value.producer() if value is not None else None
    if producer is None or not is_operator(producer, "Conv", "Add"):
        return False
    return node_name(producer) in placed.int8


def _is_int8_branch(placed: Placed, value: ir.Value | None) -> bool:
    value = before_activation(value) if placed.target.fuses_activations else value
    producer = value.producer() if value is not None else None
    return producer is not None and producer.op_type == "Conv" and node_name(producer) in placed.int8


def _position(placed: Placed, value: ir.Value | None) -> int:
    producer = value.producer() if value is not None else None
    return -1 if producer is None else next(i for i, node in enumerate(placed.graph) if node is producer)
