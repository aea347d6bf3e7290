# SPDX-License-Identifier: Apache-2.0
"""Which edges of a graph are quantized for one target: rules applied to nodes, no numbers.

1. Compute nodes (convolutions, products) and residual sums ask for 8-bit inputs, as the rules say.
2. Pools and concatenations join where their inputs are quantized anyway.
3. Value-preserving operators (MaxPool, Reshape, ...) run on codes: either the quantization moves above them,
   or, where the target quantizes outputs, both sides share one grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.quantize.attention import attention_products, transposed_attention
from quantrt.quantize.behind_conv import before_activation, is_mean_of_images
from quantrt.quantize.coordinates import why_not_coordinates
from quantrt.quantize.exclusions import excluded_nodes
from quantrt.quantize.fused_output import FUSED_ACTIVATIONS, fused_output
from quantrt.quantize.gates import gate_nodes
from quantrt.quantize.mixed_grids import why_not_beside
from quantrt.quantize.obstacle import obstacle_of
from quantrt.quantize.operands import (
    is_activation,
    is_float,
    is_per_image,
    is_plain_gemm,
    is_spread,
    rule_of,
    weight_axis,
)
from quantrt.quantize.opsets import QDQ_OPSET
from quantrt.quantize.quantized_model import Decision, Placement, Use
from quantrt.quantize.tables import is_table_rule, why_not_table
from quantrt.quantize.target import Grid, OpRule, Target
from quantrt.quantize.zero_points import takes_zero_point

__all__ = ["place"]

GATE = "gate of a squeeze-and-excite block: a 1x1 map, nothing to gain"


def place(
    graph: ir.Model,
    target: Target,
    *,
    exclude: tuple[str, ...] = (),
    exclude_types: tuple[str, ...] = (),
    kept_float: Mapping[str, str] | None = None,
) -> Placement:
    """Apply a target's rules to a canonical float graph.

    Args:
        graph: nodes have unique names; shapes are known where inference could tell.
        exclude: node names or globs that stay float.
        exclude_types: operator types that stay float.
        kept_float: names of further nodes that stay float, with the reason.

    Raises:
        UsageError: a name, glob or type matches no node.
    """
    excluded = {**(kept_float or {}), **excluded_nodes(graph.graph, exclude, exclude_types)}
    obstacle = obstacle_of(graph, target)
    if obstacle is not None:
        excluded = {_name(node): obstacle for node in graph.graph}
    placer = _Placer(graph, target, excluded)
    for node in graph.graph:
        placer.ask(node)
    for node in graph.graph:
        placer.join(node)
    placer.carry()
    return placer.placement()


class _Placer:
    """Working state of `place`; every method adds edges, none removes any but `carry`."""

    def __init__(self, model: ir.Model, target: Target, excluded: dict[str, str]) -> None:
        self.graph = graph = model.graph
        self.opset = model.opset_imports.get("", QDQ_OPSET)
        self.target = target
        self.excluded = excluded
        self.gates = gate_nodes(graph)
        self.attention = attention_products(graph)
        self.uses: dict[Use, ir.Value] = {}
        self.per_token: set[Use] = set()
        self.weights: dict[Use, int | None] = {}
        self.biases: dict[Use, tuple[Use, Use]] = {}
        self.groups: list[set[str]] = []
        self.values: set[str] = set()
        self.made: set[str] = set()
        self.symmetric: set[Use] = set()
        self.grids: dict[str, Grid] = {}
        self.reasons: dict[str, str] = {}
        self.int8: set[str] = set()

    def _rule(self, node: ir.Node) -> OpRule | None:
        return rule_of(node, self.target)

    def ask(self, node: ir.Node) -> None:
        """Quantize the inputs of a compute node or a residual sum."""
        rule = self._rule(node)
        refusal = self._refusal(node, rule)
        if refusal is not None or rule is None:
            self.reasons[_name(node)] = refusal or "its input is not quantized"
            if rule is not None and refusal == GATE and self.target.codes_of_gates:
                self._store_weight(node, rule)
        elif node.op_type == "Add":
            self._ask_residual(node, rule)
        elif rule.behind_product:
            self._ask_mean(node, rule)
        elif is_table_rule(rule):
            self._ask_table(node, rule)
        elif rule.weight is not None:
            self._ask_compute(node, rule)

    def _refusal(self, node: ir.Node, rule: OpRule | None) -> str | None:
        if _name(node) in self.excluded:
            return self.excluded[_name(node)]
        if rule is None:
            return f"{node.op_type} has no 8-bit form for {self.target.name}"
        if _name(node) in self.gates:
            return GATE
        return why_not_coordinates(node) or why_not_beside(node, rule, self.target)

    def _ask_compute(self, node: ir.Node, rule: OpRule) -> None:
        indices, refusal = self._operands(node, rule)
        if refusal is not None:
            self.reasons[_name(node)] = refusal
            return
        if rule.per_token and indices == (0,):
            self.per_token.add((_name(node), 0))
            self._store_weight(node, rule)
            self.int8.add(_name(node))
            self.reasons[_name(node)] = "each row that it multiplies has a scale of its own"
            return
        for index in indices:
            self._use(node, index)
            if rule.symmetric and indices != (0,):
                self.symmetric.add((_name(node), index))
        if indices == (0,):
            weight = (_name(node), rule.weight or 0)
            self.weights[weight] = weight_axis(node, rule)
            if rule.bias is not None:  # also where there is none yet: correcting it may make one
                self.biases[(_name(node), rule.bias)] = ((_name(node), 0), weight)
        self._became_int8(node, rule, "it multiplies 8-bit codes")

    def _store_weight(self, node: ir.Node, rule: OpRule) -> None:
        """Codes of the weight of what multiplies floats."""
        if rule.weight is not None and self._operands(node, rule) == ((0,), None):
            self.weights[(_name(node), rule.weight)] = weight_axis(node, rule)

    def _ask_table(self, node: ir.Node, rule: OpRule) -> None:
        refusal = why_not_table(node, rule, self.opset)
        self.reasons[_name(node)] = refusal or "8-bit table: rows are dequantized where they are read"
        if refusal is None:
            self.weights[(_name(node), rule.weight or 0)] = rule.weight_axis
            self.int8.add(_name(node))

    def _operands(self, node: ir.Node, rule: OpRule) -> tuple[tuple[int, ...], str | None]:
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
        if _name(node) not in self.attention:
            return (), "product of two activations outside softmax attention: ranges too wide"
        return rule.activations, None

    def _ask_residual(self, node: ir.Node, rule: OpRule) -> None:
        name = _name(node)
        if not all(is_activation(value) for value in node.inputs) or node.inputs[0] is node.inputs[1]:
            self.reasons[name] = "adds a constant, or a value to itself"
            return
        branches = [self._is_int8_branch(value) for value in node.inputs]
        if self.target.residual == "none" or not any(branches):
            self.reasons[name] = "not the residual sum of an 8-bit convolution"
            return
        if rule.output and fused_output(node).is_graph_output():
            self.reasons[name] = "its result is an output of the model"
            return
        if self.target.residual == "skip" and any(map(is_per_image, node.inputs)):
            self.reasons[name] = "adds one number to all pixels of a channel"
            return
        if self.target.residual == "both":
            indices = [0, 1]
        elif all(branches):
            # Projection shortcut: the branch computed last is fused, the other one is read back.
            order = [self._position(value) for value in node.inputs]
            indices = [0] if order[0] < order[1] else [1]
        else:
            indices = [branches.index(False)]
        for index in indices:
            self._use(node, index)
            if rule.symmetric:
                self.symmetric.add((name, index))
        self._became_int8(node, rule, "residual sum of an 8-bit convolution")

    def _ask_mean(self, node: ir.Node, rule: OpRule) -> None:
        source = node.inputs[0]
        is_alone = source is not None and len(source.uses()) == 1 and not source.is_graph_output()
        if is_alone and is_mean_of_images(node) and self._is_made_in_codes(before_activation(source)):
            self._use(node, 0)
            self._became_int8(node, rule, "an 8-bit convolution makes its input")

    def _is_made_in_codes(self, value: ir.Value | None) -> bool:
        """Whether an 8-bit convolution makes a value, or the sum that is computed in its kernel."""
        producer = value.producer() if value is not None else None
        return producer is not None and is_operator(producer, "Conv", "Add") and _name(producer) in self.int8

    def _is_int8_branch(self, value: ir.Value | None) -> bool:
        value = before_activation(value) if self.target.fuses_activations else value
        producer = value.producer() if value is not None else None
        return producer is not None and producer.op_type == "Conv" and _name(producer) in self.int8

    def _position(self, value: ir.Value | None) -> int:
        producer = value.producer() if value is not None else None
        return -1 if producer is None else next(i for i, node in enumerate(self.graph) if node is producer)

    def _became_int8(self, node: ir.Node, rule: OpRule, why: str) -> None:
        self.int8.add(_name(node))
        self.reasons[_name(node)] = why
        if rule.output:
            self._make(fused_output(node))

    def _make(self, value: ir.Value) -> None:
        """A kernel makes `value` in 8 bits: whoever reads it reads codes."""
        self.values.add(_name_of(value))
        self.made.add(_name_of(value))

    def _use(self, node: ir.Node, index: int) -> None:
        value = node.inputs[index]
        if value is not None:
            self.uses[(_name(node), index)] = value
            self.values.add(_name_of(value))
            rule = self._rule(node)
            if rule is not None and rule.grid is not None:
                self.grids[_name_of(value)] = rule.grid
            if self.target.one_sided is not None and (rule is None or not takes_zero_point(node, rule)):
                self.symmetric.add((_name(node), index))

    def join(self, node: ir.Node) -> None:
        """Quantize a pool or a concatenation whose inputs are quantized for others anyway."""
        rule = self._rule(node)
        if rule is None or not rule.only_if_quantized or node.op_type == "Add":
            return
        if self._refusal(node, rule) is not None or _name(node) in self.int8:
            return
        if node.op_type == "ReduceMean" and not is_mean_of_images(node):
            self.reasons[_name(node)] = "no mean over the pixels of an image"
            return
        # A target without quantized outputs joins a concatenation from behind, in `carry`.
        wanted = len(node.inputs) if rule.passes else 1
        inputs = [value for value in node.inputs[:wanted] if self._is_quantized(value)]
        if len(inputs) < wanted or (rule.passes and not self.target.quantizes_outputs):
            self.reasons[_name(node)] = "its input is not quantized"
            return
        if (rule.output or rule.passes) and fused_output(node).is_graph_output():
            self.reasons[_name(node)] = "its result is an output of the model"
            return
        for index in range(wanted):
            self._use(node, index)
        if rule.passes:
            self._make(node.outputs[0])
            self.groups.append({_name_of(value) for value in (*inputs, node.outputs[0])})
        self._became_int8(node, rule, "its input is 8-bit anyway")

    def _is_quantized(self, value: ir.Value | None) -> bool:
        return is_activation(value) and _name_of(value) in self.values

    def carry(self) -> None:
        """Move quantization above value-preserving operators, or share one grid across them."""
        passing = [node for node in self.graph if (rule := self._rule(node)) is not None and rule.passes]
        if self.target.quantizes_outputs:
            for node in passing:
                self._share(node)
            self._read_what_is_made()
        else:
            for node in reversed(passing):
                self._hoist(node)
        for node in passing:
            if _name(node) not in self.excluded and _name(node) not in self.int8:
                self.reasons[_name(node)] = "moves values: runs in the precision of its input"

    def _share(self, node: ir.Node) -> None:
        source, result = node.inputs[0], node.outputs[0]
        if node.op_type == "Concat" or not is_activation(source) or _name(node) in self.excluded:
            return
        pair = {_name_of(source), _name_of(result)}
        only_leaves = result.is_graph_output() and _name_of(result) not in self.values
        if pair & self.values and not only_leaves:
            self._use(node, 0)
            self._make(result)
            self.groups.append(pair)

    def _read_what_is_made(self) -> None:
        """Every reader of a value that a kernel makes in 8 bits sees the rounded one."""
        for node in self.graph:
            for index, value in enumerate(node.inputs):
                if value is not None and _name_of(value) in self.made:
                    self.uses[(_name(node), index)] = value

    def _hoist(self, node: ir.Node) -> None:
        """Quantize the inputs of `node` instead of its output, when every reader wants codes."""
        result = node.outputs[0]
        edges = [(_name(consumer), index) for consumer, index in result.uses()]
        kept = result.is_graph_output() or _name(node) in self.excluded or self._moves_short_rows(node)
        leaves = any(consumer.graph is not self.graph for consumer, _ in result.uses())
        if not edges or kept or leaves or not all(edge in self.uses for edge in edges):
            return
        data = [0] if node.op_type != "Concat" else list(range(len(node.inputs)))
        if not all(is_activation(node.inputs[index]) for index in data):
            return
        rule, grid = self._rule(node), self.grids.get(_name_of(result))
        if rule is not None and rule.grid not in (None, grid):
            return
        wants_symmetric = any(edge in self.symmetric for edge in edges)
        for edge in edges:
            del self.uses[edge]
        self.values.discard(_name_of(result))
        for index in data:
            self._use(node, index)
            if grid is not None:
                self.grids[_name_of(node.inputs[index])] = grid
            if wants_symmetric:
                self.symmetric.add((_name(node), index))
        # The result's too: a concatenation behind this node may share its grid with others.
        self.groups.append({_name_of(result), *(_name_of(node.inputs[index]) for index in data)})

    def _moves_short_rows(self, node: ir.Node) -> bool:
        """Whether attention's output is moved in rows that the target moves faster as floats."""
        made = transposed_attention(node, self.attention)
        size = made.shape[-1] if made is not None and made.shape else None
        return self.target.row_bytes > 1 and isinstance(size, int) and size % self.target.row_bytes != 0

    def _absorb_activations(self) -> None:
        """An activation right after an 8-bit node is computed inside that node's kernel."""
        for node in self.graph:
            source = node.inputs[0] if node.inputs else None
            producer = source.producer() if source is not None else None
            if producer is None or _name(producer) not in self.int8 or _name(node) in self.excluded:
                continue
            if source is not fused_output(producer) and node.op_type in FUSED_ACTIVATIONS:
                self.int8.add(_name(node))
                self.reasons[_name(node)] = f"computed inside the 8-bit {producer.op_type} before it"

    def placement(self) -> Placement:
        """The finished placement; groups are merged until they are disjoint."""
        self._absorb_activations()
        outputs = self.made & {_name_of(value) for value in self.graph.outputs}
        values = {_name_of(value) for value in self.uses.values()} | outputs
        decisions = tuple(
            Decision(_name(n), n.op_type, _name(n) in self.int8, self.reasons[_name(n)]) for n in self.graph
        )
        groups = (frozenset(group & values) for group in _disjoint(self.groups))
        return Placement(
            values=frozenset(values),
            uses={edge: _name_of(value) for edge, value in self.uses.items()},
            per_token=frozenset(self.per_token),
            made=frozenset(self.made & values) if self.target.quantizes_outputs else frozenset(),
            outputs=frozenset(outputs),
            grids={name: grid for name, grid in self.grids.items() if name in values},
            symmetric=frozenset(_name_of(v) for edge, v in self.uses.items() if edge in self.symmetric),
            groups=tuple(group for group in groups if len(group) > 1),
            weights=self.weights,
            biases=self.biases if self.target.int32_bias else {},
            decisions=decisions,
        )


def _disjoint(groups: list[set[str]]) -> Iterator[set[str]]:
    merged: list[set[str]] = []
    for group in groups:
        joined = set(group)
        rest = []
        for other in merged:
            if joined & other:
                joined |= other
            else:
                rest.append(other)
        merged = [*rest, joined]
    yield from merged


def _name(node: ir.Node) -> str:
    return node.name or ""


def _name_of(value: ir.Value | None) -> str:
    return (value.name if value is not None else None) or ""
