# SPDX-License-Identifier: Apache-2.0
"""Nodes that hand sequences of tensors, or optional ones, to each other, as one region: no buffer holds them.

torch writes an EmbeddingBag as a Loop that inserts a row in a sequence at every turn, with a
ConcatFromSequence behind it.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from quantrt.regions.clusters import Clusters
from quantrt.regions.facts.facts import Facts, reads_of
from quantrt.regions.facts.host import reads_device_values
from quantrt.regions.region import Mismatch, Nodes, Region

__all__ = ["find_sequences"]


def find_sequences(
    facts: Facts, clusters: Clusters, claimed: Collection[int]
) -> tuple[list[Region], list[Mismatch]]:
    """Regions of nodes outside `claimed` that share sequences, and of whatever stands between them."""
    regions: list[Region] = []
    mismatches: list[Mismatch] = []
    done: set[int] = set()
    for position, node in enumerate(facts.nodes):
        if position in done or not any(_is_held_by_none(value) for value in node.outputs):
            continue
        members = _enclosed(_sharers(position, facts), facts)
        done |= members
        if any(member in claimed for member in members) or not clusters.merge(members):
            mismatches.append(Mismatch("sequence", "its nodes cannot run as one", node.name or ""))
            continue
        inputs, outputs = facts.crossing(members)
        names = tuple(facts.nodes[member].name or "" for member in sorted(members))
        formula = Nodes(any(reads_device_values(facts.nodes[member], facts) for member in members))
        regions.append(Region(node.name or "", formula, names, inputs, outputs))
    return regions, mismatches


def _is_held_by_none(value: ir.Value) -> bool:
    return isinstance(value.type, ir.SequenceType | ir.OptionalType)


def _sharers(first: int, facts: Facts) -> set[int]:
    """The nodes that a sequence of one node passes through, from node to node."""
    members = {first}
    frontier = [first]
    while frontier:
        node = facts.nodes[frontier.pop()]
        shared = [value for value in (*node.outputs, *reads_of(node)) if _is_held_by_none(value)]
        for value in shared:
            maker = facts.maker_of(value)
            touching = {*facts.readers_of(value), *(() if maker is None else (maker,))}
            frontier += touching - members
            members |= touching
    return members


def _enclosed(members: set[int], facts: Facts) -> set[int]:
    """With the nodes that read from some of them and are read by others."""
    behind, ahead = set(members), set(members)
    for position in range(min(members), max(members) + 1):
        if position in behind:
            behind |= facts.successors(position)
    for position in range(max(members), min(members) - 1, -1):
        if facts.successors(position) & ahead:
            ahead.add(position)
    return members | (behind & ahead)
