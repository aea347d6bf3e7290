# SPDX-License-Identifier: Apache-2.0
"""Quantized edges of an ONNX graph, found again in the traced module that it was exported from.

A value of the graph has the name of the node that makes it; an ONNX node knows the node it is of. What has no
edge in the module, because one of its operators is several in ONNX, stays float and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from torch import fx

from quantrt.config import QuantizeConfig
from quantrt.ir.edit import constant_of, is_operator
from quantrt.model.model import Model
from quantrt.quantize.placement.known_ranges import makers_of
from quantrt.quantize.placement.place_by_config import place_by_config
from quantrt.quantize.quantized_model import Placement, Use
from quantrt.quantize.target import Target
from quantrt.torch.qat.fx_edit import parameter_of
from quantrt.torch.qat.trace import owner_of

__all__ = ["ConstantEdge", "Edges", "ValueEdge", "constant_edge", "place_traced"]

_SHAPE_ONLY = ("Shape", "Size")


@dataclass(frozen=True)
class ValueEdge:
    """An activation and a node that reads it."""

    source: fx.Node
    reader: fx.Node


@dataclass(frozen=True)
class ConstantEdge:
    """A parameter and the node that reads it; transposed where the ONNX operator has it the other way."""

    source: fx.Node
    reader: fx.Node
    is_transposed: bool


@dataclass
class Edges:
    """What was found.

    Attributes:
        values: for each quantized edge that reads an activation.
        constants: for each weight, and each bias that is a parameter.
        outputs: nodes whose values are outputs of the model, for each output that is quantized.
        lost: what was not found, by the name of the ONNX node: why.
        readers: the node of the module that each ONNX node is of, None where it is of no single one.
        kept_float: ONNX nodes that stay float for want of edges, by name: why.
    """

    values: dict[Use, tuple[ValueEdge, ...]] = field(default_factory=dict)
    constants: dict[Use, ConstantEdge] = field(default_factory=dict)
    outputs: dict[str, tuple[fx.Node, ...]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    readers: dict[str, fx.Node | None] = field(default_factory=dict)
    kept_float: dict[str, str] = field(default_factory=dict)


def place_traced(
    network: fx.GraphModule, model: Model, target: Target, config: QuantizeConfig
) -> tuple[Placement, Edges]:
    """Apply a target's rules to the edges that a traced module has.

    Raises:
        UsageError: an exclusion matches nothing.
    """
    makers = {value.name or "": node for node in model.graph.graph for value in node.outputs}
    kept_float: dict[str, str] = {}
    while True:
        placement = place_by_config(model.graph, target, config, kept_float)
        edges = _Finder(network, model, placement).find()
        if not edges.lost:
            edges.kept_float = kept_float
            return placement, edges
        for name, reason in edges.lost.items():
            kept_float[name] = reason
            read = [value for (node, _), value in placement.uses.items() if node == name]
            for maker in (maker for value in read for maker in makers_of(makers, value)):
                if target.quantizes_outputs:
                    kept_float.setdefault(maker, f"what it makes is read in floats: {reason}")


class _Finder:
    """Finds the edges of one placement."""

    def __init__(self, network: fx.GraphModule, model: Model, placement: Placement) -> None:
        self.network = network
        self.placement = placement
        self.nodes = {node.name or "": node for node in model.graph.graph}
        traced = {node.name: node for node in network.graph.nodes}
        self.reader_of = {name: owner_of(node, traced) for name, node in self.nodes.items()}
        known = {value.name for node in self.nodes.values() for value in node.outputs}
        known |= {value.name for value in model.graph.graph.inputs}
        self.value_of: dict[fx.Node, str | None] = {}
        for node in network.graph.nodes:
            if node.op == "call_module":  # a dropout that was put back: at inference its input
                self.value_of[node] = self.value_of[node.args[0]]
            else:
                self.value_of[node] = node.name if node.name in known else model.absent.get(node.name)

    def find(self) -> Edges:
        """Every edge of the placement, or why it is not there."""
        edges = Edges(readers=self.reader_of)
        for use, value in self.placement.uses.items():
            found = self._value_edges(use, value)
            if isinstance(found, str):
                edges.lost.setdefault(use[0], found)
            else:
                edges.values[use] = found
        for use in (*self.placement.weights, *self.placement.biases):
            constant = self._constant_edge(use)
            if isinstance(constant, str):
                edges.lost.setdefault(use[0], constant)
            elif constant is not None:
                edges.constants[use] = constant
        for name in self.placement.outputs:
            returned = self.network.graph.output_node().all_input_nodes
            edges.outputs[name] = tuple(node for node in returned if self.value_of[node] == name)
        return edges

    def _value_edges(self, use: Use, value: str) -> tuple[ValueEdge, ...] | str:
        reader = self.reader_of[use[0]]
        if reader is None:
            return "it is of no single operator of the module"
        sources = [node for node in reader.all_input_nodes if self.value_of[node] == value]
        if not sources:
            return f"what it reads is inside of {reader.target}, which has no edge there"
        for node in self._nodes_of(reader):
            reads = [i for i, read in enumerate(node.inputs) if read is not None and read.name == value]
            if any((node.name or "", i) not in self.placement.uses for i in reads) and not _is_shape(
                node, reads
            ):
                return f"{reader.target} reads what it reads in floats too"
        return tuple(ValueEdge(source, reader) for source in sources)

    def _nodes_of(self, reader: fx.Node) -> Iterator[ir.Node]:
        return (node for name, node in self.nodes.items() if self.reader_of[name] is reader)

    def _constant_edge(self, use: Use) -> ConstantEdge | str | None:
        """Where a constant operand comes from; None for a bias that the module does not have."""
        node = self.nodes[use[0]]
        array = constant_of(node.inputs[use[1]]) if use[1] < len(node.inputs) else None
        if array is None:
            return None
        is_weight = use in self.placement.weights
        reader = self.reader_of[use[0]]
        edge = None if reader is None else constant_edge(self.network, reader, array)
        if edge is not None:
            return edge
        if not (is_weight or array.any()):
            return None
        if reader is None:
            return "it is of no single operator of the module"
        return "its weight is computed from several parameters" if is_weight else "its bias is no parameter"


def constant_edge(network: fx.GraphModule, reader: fx.Node, array: np.ndarray) -> ConstantEdge | None:
    """The parameter of a node that a constant of its ONNX operator is; None where it is none of them."""
    for source in reader.all_input_nodes:
        parameter = parameter_of(network, source)
        if parameter is None:
            continue
        held = parameter.detach().cpu().numpy()
        if np.array_equal(held, array):
            return ConstantEdge(source, reader, is_transposed=False)
        if held.ndim == 2 and np.array_equal(held.T, array):
            return ConstantEdge(source, reader, is_transposed=True)
    return None


def _is_shape(node: ir.Node, reads: list[int]) -> bool:
    """Whether a node reads a value for its shape or type alone."""
    return is_operator(node, *_SHAPE_ONLY) or (is_operator(node, "CastLike") and reads == [1])
