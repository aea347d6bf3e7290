# SPDX-License-Identifier: Apache-2.0
"""A switched graph cut where few tensors pass: a switch late in the model needs no run from its start.

    float part:     tensors at one cut -> tensors at the next
    switched part:  tensors at a cut, flags -> outputs of the model, with a few of the switches

Everything before the first switch that is on is the float model, whichever that is: it is run once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import constant_of, is_operator
from quantrt.model.passes.remove_unused import remove_unused
from quantrt.quantize.switches import FLAGS

__all__ = ["Cut", "cut_part", "find_cuts", "with_switches"]

MOST_TENSORS = 4
"""That a cut may pass through; more would take memory and save little."""


@dataclass(frozen=True)
class Cut:
    """A place between two nodes.

    Attributes:
        position: how many nodes stand before it.
        tensors: names of what nodes before it make and nodes behind it read.
    """

    position: int
    tensors: tuple[str, ...]


def find_cuts(graph: ir.Graph, count: int) -> tuple[Cut, ...]:
    """The start, and up to `count` - 1 cuts at about equal distances, each where the fewest tensors pass.

    Args:
        graph: float nodes in topological order.
    """
    nodes = list(graph)
    options = _options(graph, nodes)
    cuts = [Cut(0, ())]
    step = len(nodes) / count
    for number in range(1, count):
        near = [cut for cut in options if abs(cut.position - number * step) <= step / 2]
        near = [cut for cut in near if cut.position > cuts[-1].position]
        if near:
            cuts.append(min(near, key=lambda cut: (len(cut.tensors), abs(cut.position - number * step))))
    return tuple(cuts)


def _options(graph: ir.Graph, nodes: Sequence[ir.Node]) -> list[Cut]:
    last_read: dict[str, int] = {}
    places = {id(node): place for place, node in enumerate(nodes)}
    outputs = {value.name for value in graph.outputs}
    for node in nodes:
        for value in node.outputs:
            uses = [places.get(id(use.node), len(nodes)) for use in value.uses()]
            if uses and value.name:
                last_read[value.name] = max(uses)
    values = {value.name: value for node in nodes for value in node.outputs}
    found, live = [], list[str]()
    for place, node in enumerate(nodes):
        live = [name for name in live if last_read[name] >= place]
        if 0 < len(live) <= MOST_TENSORS and not outputs & set(live) and all(values[n].type for n in live):
            found.append(Cut(place, tuple(live)))
        live += [value.name for value in node.outputs if value.name in last_read]
    return found


def cut_part(graph: ir.Model, starts: Sequence[str], ends: Sequence[str]) -> ir.Model:
    """The nodes between some values and others.

    Args:
        starts: values of the main graph that become inputs; inputs of the model that are needed stay.
        ends: values of the main graph that become the outputs.
    """
    part = clone(graph)
    values = {value.name: value for node in part.graph for value in node.outputs if value.name}
    part.graph.outputs[:] = [values[name] for name in ends]
    for name in starts:
        old = values[name]
        new = ir.Value(name=name, type=old.type)
        old.name = f"{name}/quantrt.before"
        old.replace_all_uses_with(new)
        part.graph.inputs.append(new)
    remove_unused(part)
    part.graph.inputs[:] = [value for value in part.graph.inputs if value.uses()]
    return part


def with_switches(graph: ir.Model, kept: Collection[int]) -> ir.Model:
    """A switched graph in which only some switches are left; the others are off for good."""
    part = clone(graph)
    for node in list(part.graph):
        index = _switch_index(node)
        if index is not None and index not in kept:
            node.outputs[0].replace_all_uses_with(_floating(node), replace_graph_outputs=False)
    return part


def _switch_index(node: ir.Node) -> int | None:
    """The place in the flags of a Where that is a switch before a node; None for every other node."""
    if not is_operator(node, "Where") or node.outputs[0].is_graph_output():
        return None
    condition = node.inputs[0]
    gather = condition.producer() if condition is not None else None
    if gather is None or not is_operator(gather, "Gather") or gather.inputs[0] is None:
        return None
    position = constant_of(gather.inputs[1])
    return int(position) if gather.inputs[0].name == FLAGS and position is not None else None


def _floating(node: ir.Node) -> ir.Value:
    value = node.inputs[2]
    assert value is not None  # a switch is always made with both
    return value
