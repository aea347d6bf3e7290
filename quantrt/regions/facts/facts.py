# SPDX-License-Identifier: Apache-2.0
"""What every pattern asks of a graph: order, readers, constants, sizes, and which values live on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from quantrt.regions.facts.sizes import Sizes

__all__ = ["Facts", "gather_facts", "has_body", "is_constant", "reads_of"]

_LEGACY_OPSET = 13


@dataclass(frozen=True)
class Facts:
    """A graph, indexed. Nodes are known by their position in it.

    Attributes:
        nodes: in topological order.
        makers: position of the node that makes a value, by the value's name.
        readers: positions of the nodes that read a value, those whose subgraphs capture it included.
        outputs: names of the graph's outputs.
        host: names of the values that live on the CPU.
    """

    nodes: tuple[ir.Node, ...]
    makers: Mapping[str, int]
    readers: Mapping[str, tuple[int, ...]]
    outputs: frozenset[str]
    opset: int
    sizes: Sizes
    host: frozenset[str] = frozenset()

    def successors(self, position: int) -> set[int]:
        """Nodes that read what a node makes."""
        return {reader for value in self.nodes[position].outputs for reader in self.readers_of(value)}

    def readers_of(self, value: ir.Value) -> tuple[int, ...]:
        """Positions of the nodes that read a value."""
        return self.readers.get(value.name or "", ())

    def is_read(self, value: ir.Value) -> bool:
        """Whether anything reads the value: a node, or the caller."""
        return bool(self.readers_of(value)) or value.name in self.outputs

    def is_activation(self, value: ir.Value | None) -> bool:
        """Whether a value is on the device and changes from run to run."""
        return value is not None and not is_constant(value) and value.name not in self.host

    def only_reader(self, value: ir.Value) -> int | None:
        """The one node that reads a value, at one input; None where there are others, or the caller."""
        readers = self.readers_of(value)
        if len(readers) != 1 or value.name in self.outputs:
            return None
        times = sum(1 for given in self.nodes[readers[0]].inputs if given is value)
        return readers[0] if times == 1 else None

    def maker_of(self, value: ir.Value | None) -> int | None:
        """Position of the node that makes a value."""
        return None if value is None else self.makers.get(value.name or "")

    def crossing(self, positions: Iterable[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What a set of nodes reads from outside (no constants), and what it makes that others read."""
        inside = sorted(positions)
        members = set(inside)
        made = [value for position in inside for value in self.nodes[position].outputs if value.name]
        names = {value.name for value in made}
        inputs: dict[str, None] = {}
        for position in inside:
            for value in reads_of(self.nodes[position]):
                if value.name not in names and not is_constant(value):
                    inputs[value.name or ""] = None
        outputs = [
            value.name or ""
            for value in made
            if value.name in self.outputs or any(reader not in members for reader in self.readers_of(value))
        ]
        return tuple(inputs), tuple(outputs)


def gather_facts(graph: ir.Model) -> Facts:
    """Index a graph; no value is on the CPU yet."""
    nodes = tuple(graph.graph)
    makers: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for position, node in enumerate(nodes):
        makers.update({value.name: position for value in node.outputs if value.name})
        for value in reads_of(node):
            readers.setdefault(value.name or "", []).append(position)
    return Facts(
        nodes,
        makers,
        {name: tuple(positions) for name, positions in readers.items()},
        frozenset(value.name or "" for value in graph.graph.outputs),
        graph.opset_imports.get("", graph.opset_imports.get("ai.onnx", _LEGACY_OPSET)),
        Sizes(graph),
    )


def is_constant(value: ir.Value | None) -> bool:
    """Whether a value is a weight of the model, text included."""
    if value is None or not value.is_initializer() or value.is_graph_input():
        return False
    return value.const_value is not None


def has_body(node: ir.Node) -> bool:
    """Whether a node has a subgraph."""
    return any(_bodies(node))


def reads_of(node: ir.Node) -> tuple[ir.Value, ...]:
    """The values that a node reads, each once: its inputs, then what its subgraphs capture from outside."""
    found = {value: None for value in node.inputs if value is not None}
    for body in _bodies(node):
        found.update(dict.fromkeys(_captured(body)))
    return tuple(found)


def _captured(body: ir.Graph) -> Iterator[ir.Value]:
    own = {*body.inputs, *body.initializers.values()}
    for node in body:
        yield from (value for value in reads_of(node) if value not in own)
        own.update(node.outputs)
    yield from (value for value in body.outputs if value not in own)


def _bodies(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS and not attribute.is_ref():
            yield from attribute.as_graphs()
