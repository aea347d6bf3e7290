# SPDX-License-Identifier: Apache-2.0
"""Read a model that was quantized before: its float graph, with its own codes and scales on the edges.

integer operators -> Q/DQ pairs; constants -> floats, their codes kept; pairs -> annotations of edges, or
roundings in floats
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from quantrt.errors import InternalError
from quantrt.ir.clone import clone
from quantrt.ir.edit import is_operator
from quantrt.ir.shapes import infer_shapes
from quantrt.model.model import Model
from quantrt.model.passes.fold.fold_constants import fold_constants
from quantrt.model.passes.remove_identities import remove_identities
from quantrt.model.passes.remove_unused import remove_unused
from quantrt.model.passes.types.widen_halves import widen_halves
from quantrt.quantize.explicit.edges import Edges, read_edges
from quantrt.quantize.explicit.operators import spell_integer_operators
from quantrt.quantize.explicit.weights import choose_weights, dequantize_constants
from quantrt.quantize.patterns.tables import is_table_rule
from quantrt.quantize.quantized_model import Decision, Placement, QuantizedModel, Use
from quantrt.quantize.scales.qparams import QuantizedTensor
from quantrt.quantize.target import OpRule, Target
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8

__all__ = ["read", "target_of_own"]

CLIP_OPSET = 11
"""The first opset whose Clip takes its bounds as inputs."""


def read(model: Model, target: Target | None = None) -> QuantizedModel:
    """The float graph of a model with QuantizeLinear and DequantizeLinear, or QLinear operators, annotated.

    Scales and codes are the model's own. What the annotation cannot say is in the graph: a rounding that a
    reader of floats sees is there as float operators, a weight without 8-bit kernel as the floats it stands
    for. Floats of 16 bits are float32: an engine has types of its own. When the annotated edges read codes,
    the graph computes what the model computes, up to roundings in float32.

    Args:
        target: a table of symmetric rules; by default that of the codes that most of the model's nodes have.
    """
    target = target_of_own(model) if target is None else target
    graph = clone(model.graph)
    if graph.opset_imports.get("", 0) < CLIP_OPSET:
        return _annotated(model, graph, target, _Found({}, {}, Edges()), "the opset is older than 11")
    if widen_halves(graph):
        infer_shapes(graph)
        remove_identities(graph)
    spell_integer_operators(graph)
    codes, folded = dequantize_constants(graph)
    remove_unused(graph)
    weights, refused = choose_weights(graph.graph, target, codes)
    edges = read_edges(graph, target, {node for node, _ in weights})
    nodes = {node.name or "": node for node in graph.graph}
    fold_constants(graph)
    remove_unused(graph)
    graph.graph.sort()
    infer_shapes(graph)
    tables = {name for name, _ in weights if name in nodes and is_table_rule(_rule(target, nodes[name]))}
    read = edges.readers | tables
    unread = f"its input does not come as {target.precision} codes"
    refused |= {use[0]: unread for use in weights if use[0] not in read}
    read_weights = {use: tensor for use, tensor in weights.items() if use[0] in read}
    return _annotated(model, graph, target, _Found(read_weights, {**refused, **folded}, edges))


def target_of_own(model: Model) -> Target:
    """The rules for the codes that a model was quantized to: of FP8 where most of its nodes make such."""
    made = [value.dtype for node in model.graph.graph for value in node.outputs]
    fp8 = made.count(ir.DataType.FLOAT8E4M3FN)
    return CUDA_FP8 if fp8 > made.count(ir.DataType.INT8) + made.count(ir.DataType.UINT8) else CUDA


@dataclass(frozen=True)
class _Found:
    """What was read of a graph."""

    weights: Mapping[Use, QuantizedTensor]
    reasons: Mapping[str, str]
    edges: Edges


def _rule(target: Target, node: ir.Node) -> OpRule:
    rule = target.rule(node.op_type)
    if rule is None:
        raise InternalError(f"'{node.name}' is no operator of target {target.name}")
    return rule


def _annotated(
    model: Model, graph: ir.Model, target: Target, found: _Found, obstacle: str | None = None
) -> QuantizedModel:
    edges = found.edges
    placement = Placement(
        values=frozenset(edges.uses.values()),
        uses=edges.uses,
        weights={use: tensor.qparams.axis for use, tensor in found.weights.items()},
        decisions=tuple(_decisions(model.graph.graph, target, found, obstacle)),
    )
    grids = {name: edges.grids[name].qparams() for name in sorted(placement.values)}
    return QuantizedModel(model, graph, target, placement, grids, found.weights)


def _decisions(graph: ir.Graph, target: Target, found: _Found, obstacle: str | None) -> Iterator[Decision]:
    """One per node of the model as given."""
    for node in graph:
        name = node.name or ""
        rule = target.rule(node.op_type) if is_operator(node, node.op_type) else None
        is_table = rule is not None and is_table_rule(rule) and (name, rule.weight) in found.weights
        is_int8 = is_table or name in found.edges.readers
        if obstacle is not None:
            reason = obstacle
        elif is_table:
            reason = "rows of its table are dequantized where they are read"
        elif is_int8:
            reason = "reads codes on the model's own scales"
        elif rule is not None and rule.passes:
            reason = "moves values: runs in the precision of its input"
        else:
            why = {**found.reasons, **found.edges.reasons}
            reason = why.get(name) or _why_float(node, rule, target)
        yield Decision(name, node.op_type, is_int8, reason)


def _why_float(node: ir.Node, rule: OpRule | None, target: Target) -> str:
    if is_operator(node, "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"):
        return "computed as it is: the scale of its input is known only when it runs"
    if rule is None:
        return f"{node.op_type} has no 8-bit form for {target.name}"
    return "its input is not quantized"
