# SPDX-License-Identifier: Apache-2.0
"""A graph in consecutive parts, each of which takes what the one before it made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.model.passes.remove_unused import remove_unused

__all__ = ["Cut", "cut_part", "list_cuts"]


@dataclass(frozen=True)
class Cut:
    """A place between two nodes.

    Attributes:
        position: how many nodes stand before it.
        tensors: names of what nodes before it make and nodes behind it read.
    """

    position: int
    tensors: tuple[str, ...]


def list_cuts(graph: ir.Graph) -> list[Cut]:
    """Every place between two nodes that only tensors of known type pass, no outputs of the model among them.

    Args:
        graph: nodes in topological order.
    """
    last_read: dict[str, int] = {}
    nodes = list(graph)
    places = {id(node): place for place, node in enumerate(nodes)}
    outputs = {value.name for value in graph.outputs}
    for node in nodes:
        for value in node.outputs:
            uses = [places.get(id(use.node), len(nodes)) for use in value.uses()]
            if uses and value.name:
                last_read[value.name] = max(uses)
    types = {value.name: value.type for node in nodes for value in node.outputs}
    found, live = [], list[str]()
    for place, node in enumerate(nodes):
        live = [name for name in live if last_read[name] >= place]
        if live and not outputs & set(live) and all(isinstance(types[n], ir.TensorType) for n in live):
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
