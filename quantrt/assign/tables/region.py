# SPDX-License-Identifier: Apache-2.0
"""Regions: nodes that share one precision, because a library runs them as one layer or nothing else can be.

The unit of assignment. A region is one node that a target can run in 8 bits, or several that one layer of an
engine computes together, such as a convolution and the residual sum behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from quantrt.quantize.patterns.fused_output import FUSED_ACTIVATIONS
from quantrt.quantize.qdq.switches import Switched
from quantrt.quantize.quantized_model import Placement

__all__ = ["FLOAT", "Region", "Surroundings", "find_regions", "switches_of_regions"]

FLOAT = "fp32"
"""The precision that every region may have, and that damages nothing."""


@dataclass(frozen=True)
class Region:
    """Nodes that are quantized together.

    Attributes:
        name: of the first node.
        nodes: names in topological order.
        op_types: of the nodes.
    """

    name: str
    nodes: tuple[str, ...]
    op_types: tuple[str, ...]


def find_regions(placement: Placement, together: Iterable[Collection[str]] = ()) -> tuple[Region, ...]:
    """The regions of a model in which everything that can be is 8-bit, in topological order.

    Args:
        together: sets of nodes that a library runs as one layer; each node may be in several.
    """
    found = [row for row in placement.decisions if row.is_int8 and row.op_type not in FUSED_ACTIVATIONS]
    first = {row.node: number for number, row in enumerate(found)}  # the least number of its region

    def root(number: int) -> int:
        while first[found[number].node] != number:
            number = first[found[number].node]
        return number

    for names in together:
        roots = sorted({root(first[name]) for name in names if name in first})
        for number in roots[1:]:
            first[found[number].node] = roots[0]
    members: dict[int, list[int]] = {}
    for number in range(len(found)):
        members.setdefault(root(number), []).append(number)
    return tuple(
        Region(
            found[numbers[0]].node,
            tuple(found[number].node for number in numbers),
            tuple(found[number].op_type for number in numbers),
        )
        for numbers in members.values()
    )


class Surroundings:
    """Which region a node is in, or stands nearest to, in a float graph.

    Args:
        graph: the nodes' graph, in topological order.
    """

    def __init__(self, graph: ir.Graph, regions: Sequence[Region]) -> None:
        self.of_node: Mapping[str, int] = {
            node: number for number, region in enumerate(regions) for node in region.nodes
        }
        self._nodes = {node.name or "": node for node in graph}
        self._makers = {value.name or "": node for node in graph for value in node.outputs}

    def before(self, names: Iterable[str]) -> int | None:
        """The region that makes what these values or nodes come from, the nearest of those above."""
        pending = [self._nodes.get(name) or self._makers.get(name) for name in names]
        return self._search(pending, upwards=True)

    def around(self, name: str) -> int | None:
        """A node's own region, else the nearest that reads of it, else the nearest that it reads of."""
        node = self._nodes.get(name)
        if node is None:
            return None
        below = self._search([node], upwards=False)
        return below if below is not None else self._search([node], upwards=True)

    def _search(self, pending: Iterable[ir.Node | None], *, upwards: bool) -> int | None:
        queue = [node for node in pending if node is not None]
        seen = {node.name for node in queue}
        for node in queue:  # grows while it is walked: the nearest come first
            number = self.of_node.get(node.name or "")
            if number is not None:
                return number
            for near in node.predecessors() if upwards else node.successors():
                if near.name not in seen:
                    seen.add(near.name)
                    queue.append(near)
        return None


def switches_of_regions(
    switched: Switched, regions: Sequence[Region], around: Surroundings
) -> tuple[tuple[int, ...], ...]:
    """For each region the switches that quantize it.

    A switch at a node outside all regions, which reads what a region makes in 8 bits, is that region's. One
    at what was made in codes is of two: of the reader's region, and of that which makes it.
    """
    found: list[list[int]] = [[] for _ in regions]
    for layer in switched.layers:
        reader = around.of_node.get(layer.name)
        owners = {reader}
        if layer.is_made:
            owners.add(around.before(layer.reads))
        elif reader is None:
            owners.add(around.before([*layer.reads, layer.name]))
        for owner in owners:
            if owner is not None:
                found[owner].append(layer.index)
    return tuple(tuple(indices) for indices in found)
