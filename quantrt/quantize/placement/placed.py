# SPDX-License-Identifier: Apache-2.0
"""What is placed so far: the edges that carry codes, the weights, and the reasons of every node."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from quantrt.quantize.patterns.attention import attention_products
from quantrt.quantize.patterns.concats import joins_other_axes
from quantrt.quantize.patterns.coordinates import why_not_coordinates
from quantrt.quantize.patterns.fused_output import FUSED_ACTIVATIONS, fused_output
from quantrt.quantize.patterns.gates import gate_nodes
from quantrt.quantize.placement.mixed_grids import why_not_beside
from quantrt.quantize.placement.operands import (
    is_activation,
    rule_of,
)
from quantrt.quantize.quantized_model import Decision, Placement, Use
from quantrt.quantize.target import Grid, OpRule, Target
from quantrt.quantize.targets.opsets import QDQ_OPSET
from quantrt.quantize.targets.zero_points import takes_zero_point

__all__ = ["GATE", "Placed", "node_name", "value_name"]

GATE = "gate of a squeeze-and-excite block: a 1x1 map, nothing to gain"


class Placed:
    """Working state of a placement; every step adds edges, none removes any but `carry`."""

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

    def rule(self, node: ir.Node) -> OpRule | None:
        """The target's, of a node."""
        return rule_of(node, self.target)

    def refusal(self, node: ir.Node, rule: OpRule | None) -> str | None:
        """Why a node stays float, whatever it reads."""
        if node_name(node) in self.excluded:
            return self.excluded[node_name(node)]
        if rule is None:
            return f"{node.op_type} has no 8-bit form for {self.target.name}"
        if node_name(node) in self.gates:
            return GATE
        return why_not_coordinates(node) or why_not_beside(node, rule, self.target)

    def use(self, node: ir.Node, index: int) -> None:
        """Quantize one input."""
        value = node.inputs[index]
        if value is not None:
            self.uses[(node_name(node), index)] = value
            self.values.add(value_name(value))
            rule = self.rule(node)
            if rule is not None and rule.grid is not None:
                self.grids[value_name(value)] = rule.grid
            takes = self.target.one_sided is None or (rule is not None and takes_zero_point(node, rule))
            if not takes or joins_other_axes(value.producer(), self.target):
                self.symmetric.add((node_name(node), index))

    def make(self, value: ir.Value) -> None:
        """A kernel makes `value` in 8 bits: whoever reads it reads codes."""
        self.values.add(value_name(value))
        self.made.add(value_name(value))

    def became_int8(self, node: ir.Node, rule: OpRule, why: str) -> None:
        """Note that a node runs on codes, and quantize what it makes where its rule says so."""
        self.int8.add(node_name(node))
        self.reasons[node_name(node)] = why
        if rule.output:
            self.make(fused_output(node))

    def is_quantized(self, value: ir.Value | None) -> bool:
        """Whether anything reads a value as codes."""
        return is_activation(value) and value_name(value) in self.values

    def _absorb_activations(self) -> None:
        """An activation right after an 8-bit node is computed inside that node's kernel."""
        for node in self.graph:
            source = node.inputs[0] if node.inputs else None
            producer = source.producer() if source is not None else None
            if producer is None or node_name(producer) not in self.int8 or node_name(node) in self.excluded:
                continue
            if source is not fused_output(producer) and node.op_type in FUSED_ACTIVATIONS:
                self.int8.add(node_name(node))
                self.reasons[node_name(node)] = f"computed inside the 8-bit {producer.op_type} before it"

    def _decision(self, node: ir.Node) -> Decision:
        name = node_name(node)
        return Decision(name, node.op_type, name in self.int8, self.reasons[name])

    def placement(self) -> Placement:
        """The finished placement; groups are merged until they are disjoint."""
        self._absorb_activations()
        outputs = self.made & {value_name(value) for value in self.graph.outputs}
        values = {value_name(value) for value in self.uses.values()} | outputs
        decisions = tuple(self._decision(node) for node in self.graph)
        groups = (frozenset(group & values) for group in _disjoint(self.groups))
        return Placement(
            values=frozenset(values),
            uses={edge: value_name(value) for edge, value in self.uses.items()},
            per_token=frozenset(self.per_token),
            made=frozenset(self.made & values) if self.target.quantizes_outputs else frozenset(),
            outputs=frozenset(outputs),
            grids={name: grid for name, grid in self.grids.items() if name in values},
            symmetric=frozenset(value_name(v) for edge, v in self.uses.items() if edge in self.symmetric),
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


def node_name(node: ir.Node) -> str:
    """The name; empty where there is none."""
    return node.name or ""


def value_name(value: ir.Value | None) -> str:
    """The name; empty where there is none."""
    return (value.name if value is not None else None) or ""
