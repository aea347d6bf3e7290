# SPDX-License-Identifier: Apache-2.0
"""Which edges of a graph are quantized for one target: rules applied to nodes, no numbers.

1. Compute nodes (convolutions, products) and residual sums ask for 8-bit inputs, as the rules say.
2. Pools and concatenations join where their inputs are quantized anyway.
3. Value-preserving operators (MaxPool, Reshape, ...) run on codes: either the quantization moves above them,
   or, where the target quantizes outputs, both sides share one grid.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

import onnx_ir as ir

from quantrt.errors import UsageError, close_match
from quantrt.quantize.attention import attention_products
from quantrt.quantize.gates import gate_nodes
from quantrt.quantize.quantized_model import Decision, Placement, Use
from quantrt.quantize.target import OpRule, Target

__all__ = ["place"]

FUSED_ACTIVATIONS = ("Relu", "Clip")
COMPUTE = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def place(
    graph: ir.Model, target: Target, *, exclude: tuple[str, ...] = (), exclude_types: tuple[str, ...] = ()
) -> Placement:
    """Apply a target's rules to a canonical float graph.

    Args:
        graph: nodes have unique names; shapes are known where inference could tell.
        exclude: node names or globs that stay float.
        exclude_types: operator types that stay float.

    Raises:
        UsageError: a name, glob or type matches no node.
    """
    excluded = _excluded(graph.graph, exclude, exclude_types)
    placer = _Placer(graph.graph, target, excluded)
    for node in graph.graph:
        placer.ask(node)
    for node in graph.graph:
        placer.join(node)
    placer.carry()
    return placer.placement()


def _excluded(graph: ir.Graph, globs: tuple[str, ...], types: tuple[str, ...]) -> dict[str, str]:
    """Names of excluded nodes, with the reason."""
    names = [node.name or "" for node in graph]
    known_types = sorted({node.op_type for node in graph})
    found: dict[str, str] = {}
    for glob in globs:
        hits = fnmatch.filter(names, glob)
        if not hits:
            near = close_match(glob, names)
            raise UsageError(f"no layer matches --exclude '{glob}'", hint=f"'{near}'" if near else None)
        found |= dict.fromkeys(hits, f"excluded by '{glob}'")
    for op_type in types:
        if op_type not in known_types:
            near = close_match(op_type, known_types)
            raise UsageError(f"the model has no operator '{op_type}'", hint=f"'{near}'" if near else None)
        found |= {n.name or "": f"excluded by type {op_type}" for n in graph if n.op_type == op_type}
    return found


class _Placer:
    """Working state of `place`; every method adds edges, none removes any but `carry`."""

    def __init__(self, graph: ir.Graph, target: Target, excluded: dict[str, str]) -> None:
        self.graph = graph
        self.target = target
        self.excluded = excluded
        self.gates = gate_nodes(graph)
        self.attention = attention_products(graph)
        self.uses: dict[Use, ir.Value] = {}
        self.weights: dict[Use, int | None] = {}
        self.biases: dict[Use, tuple[Use, Use]] = {}
        self.groups: list[set[str]] = []
        self.values: set[str] = set()
        self.symmetric: set[Use] = set()
        self.reasons: dict[str, str] = {}
        self.int8: set[str] = set()

    def ask(self, node: ir.Node) -> None:
        """Quantize the inputs of a compute node or a residual sum."""
        rule = self.target.rule(node.op_type) if node.domain == "" else None
        refusal = self._refusal(node, rule)
        if refusal is not None or rule is None:
            self.reasons[_name(node)] = refusal or ""
        elif node.op_type == "Add":
            self._ask_residual(node, rule)
        elif rule.weight is not None:
            self._ask_compute(node, rule)

    def _refusal(self, node: ir.Node, rule: OpRule | None) -> str | None:
        if _name(node) in self.excluded:
            return self.excluded[_name(node)]
        if rule is None:
            return f"{node.op_type} has no 8-bit form for {self.target.name}"
        if _name(node) in self.gates:
            return "gate of a squeeze-and-excite block: a 1x1 map, nothing to gain"
        return None

    def _ask_compute(self, node: ir.Node, rule: OpRule) -> None:
        name, weight_index = _name(node), rule.weight or 0
        weight = node.inputs[weight_index]
        if node.op_type == "Gemm" and not _is_plain_gemm(node):
            self.reasons[name] = "Gemm with transA, alpha or beta has no 8-bit kernel"
            return
        if weight is not None and weight.const_value is not None and _is_float(weight):
            if not _is_activation(node.inputs[0]):
                self.reasons[name] = "its input is a constant or not float32"
                return
            self._use(node, 0)
            if rule.symmetric:
                self.symmetric.add((name, 0))
            self.weights[(name, weight_index)] = _weight_axis(node, rule)
            if rule.bias is not None and len(node.inputs) > rule.bias and node.inputs[rule.bias] is not None:
                self.biases[(name, rule.bias)] = ((name, 0), (name, weight_index))
        elif weight_index in rule.activations and all(
            _is_activation(node.inputs[i]) for i in rule.activations
        ):
            if _name(node) not in self.attention:
                self.reasons[name] = "product of two activations outside softmax attention: ranges too wide"
                return
            for index in rule.activations:
                self._use(node, index)
                if rule.symmetric:
                    self.symmetric.add((name, index))
        else:
            self.reasons[name] = "its weight is not a constant"
            return
        self._became_int8(node, rule)

    def _ask_residual(self, node: ir.Node, rule: OpRule) -> None:
        name = _name(node)
        if not all(_is_activation(value) for value in node.inputs) or node.inputs[0] is node.inputs[1]:
            self.reasons[name] = "adds a constant"
            return
        branches = [self._is_int8_branch(value) for value in node.inputs]
        if self.target.residual == "none" or not any(branches):
            self.reasons[name] = "not the residual sum of an 8-bit convolution"
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
        self._became_int8(node, rule)

    def _is_int8_branch(self, value: ir.Value | None) -> bool:
        producer = value.producer() if value is not None else None
        return producer is not None and producer.op_type == "Conv" and _name(producer) in self.int8

    def _position(self, value: ir.Value | None) -> int:
        producer = value.producer() if value is not None else None
        return -1 if producer is None else next(i for i, node in enumerate(self.graph) if node is producer)

    def _became_int8(self, node: ir.Node, rule: OpRule) -> None:
        self.int8.add(_name(node))
        self.reasons[_name(node)] = f"8-bit {node.op_type} for {self.target.name}"
        if rule.output:
            self.values.add(_name_of(_fused_output(node)))

    def _use(self, node: ir.Node, index: int) -> None:
        value = node.inputs[index]
        if value is not None:
            self.uses[(_name(node), index)] = value
            self.values.add(_name_of(value))

    def join(self, node: ir.Node) -> None:
        """Quantize a pool or a concatenation whose inputs are quantized for others anyway."""
        rule = self.target.rule(node.op_type) if node.domain == "" else None
        if rule is None or not rule.only_if_quantized or rule.weight is not None or _name(node) in self.int8:
            return
        if node.op_type == "Add" or _name(node) in self.excluded or _name(node) in self.gates:
            return
        inputs = [value for value in node.inputs if value is not None and _is_activation(value)]
        wanted = inputs if rule.passes else inputs[:1]
        complete = len(inputs) == len(node.inputs) and self.target.quantize_all_uses if rule.passes else True
        if not wanted or not complete or any(_name_of(value) not in self.values for value in wanted):
            return
        for index in range(len(inputs) if rule.passes else 1):
            self._use(node, index)
        if rule.passes:
            self.values.add(_name_of(node.outputs[0]))
            self.groups.append({_name_of(v) for v in [*inputs, node.outputs[0]]})
        self._became_int8(node, rule)

    def carry(self) -> None:
        """Move quantization above value-preserving operators, or share one grid across them."""
        passing = [
            n for n in self.graph if n.domain == "" and (r := self.target.rule(n.op_type)) and r.passes
        ]
        if self.target.quantize_all_uses:
            for node in passing:
                self._share(node)
            self._quantize_all_uses()
        else:
            for node in reversed(passing):
                self._hoist(node)
        for node in passing:
            if _name(node) not in self.excluded and _name(node) not in self.int8:
                self.reasons[_name(node)] = "moves values: runs in the precision of its input"

    def _share(self, node: ir.Node) -> None:
        source, result = node.inputs[0], node.outputs[0]
        if node.op_type == "Concat" or not _is_activation(source) or _name(node) in self.excluded:
            return
        pair = {_name_of(source), _name_of(result)}
        if pair & self.values:
            self.values |= pair
            self.groups.append(pair)

    def _quantize_all_uses(self) -> None:
        for node in self.graph:
            for index, value in enumerate(node.inputs):
                if value is not None and _name_of(value) in self.values:
                    self.uses[(_name(node), index)] = value

    def _hoist(self, node: ir.Node) -> None:
        """Quantize the inputs of `node` instead of its output, when every reader wants codes."""
        result = node.outputs[0]
        edges = [(_name(consumer), index) for consumer, index in result.uses()]
        kept = result.is_graph_output() or _name(node) in self.excluded
        if not edges or kept or not all(edge in self.uses for edge in edges):
            return
        data = [0] if node.op_type != "Concat" else list(range(len(node.inputs)))
        if not all(_is_activation(node.inputs[index]) for index in data):
            return
        wants_symmetric = any(edge in self.symmetric for edge in edges)
        for edge in edges:
            del self.uses[edge]
        self.values.discard(_name_of(result))
        for index in data:
            self._use(node, index)
            if wants_symmetric:
                self.symmetric.add((_name(node), index))
        if len(data) > 1:
            self.groups.append({_name_of(node.inputs[index]) for index in data})

    def placement(self) -> Placement:
        """The finished placement; groups are merged until they are disjoint."""
        values = {_name_of(value) for value in self.uses.values()} | (
            self.values if self.target.quantize_all_uses else set()
        )
        decisions = tuple(
            Decision(_name(n), n.op_type, _name(n) in self.int8, self.reasons.get(_name(n), ""))
            for n in self.graph
        )
        return Placement(
            values=frozenset(values),
            uses={edge: _name_of(value) for edge, value in self.uses.items()},
            symmetric=frozenset(_name_of(v) for edge, v in self.uses.items() if edge in self.symmetric),
            groups=tuple(frozenset(group & values) for group in _disjoint(self.groups)),
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


def _fused_output(node: ir.Node) -> ir.Value:
    """The value after an activation that the library computes inside the node's kernel."""
    value = node.outputs[0]
    while True:
        uses = list(value.uses())
        if len(uses) != 1 or value.is_graph_output() or uses[0][0].op_type not in FUSED_ACTIVATIONS:
            return value
        value = uses[0][0].outputs[0]


def _weight_axis(node: ir.Node, rule: OpRule) -> int | None:
    if node.op_type == "Gemm":
        return 0 if node.attributes.get_int("transB", 0) else 1
    weight = node.inputs[rule.weight or 0]
    if node.op_type == "MatMul" and weight is not None and weight.const_value is not None:
        rank = len(weight.const_value.shape)
        return rank - 1 if rank >= 2 else None
    return rule.weight_axis


def _is_plain_gemm(node: ir.Node) -> bool:
    plain = (node.attributes.get_float("alpha", 1.0), node.attributes.get_float("beta", 1.0))
    return plain == (1.0, 1.0) and not node.attributes.get_int("transA", 0)


def _is_float(value: ir.Value) -> bool:
    tensor = value.const_value
    return (tensor.dtype if tensor is not None else value.dtype) == ir.DataType.FLOAT


def _is_activation(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is None and _is_float(value)


def _name(node: ir.Node) -> str:
    return node.name or ""


def _name_of(value: ir.Value | None) -> str:
    return (value.name if value is not None else None) or ""
