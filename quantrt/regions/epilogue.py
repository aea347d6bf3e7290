# SPDX-License-Identifier: Apache-2.0
"""Elementwise nodes behind a product, absorbed into its epilogue."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from quantrt.ir.edit import constant_of
from quantrt.regions.anchors.anchor import Anchor, is_per_channel, is_per_image, is_per_row
from quantrt.regions.clusters import Clusters
from quantrt.regions.expressions.builder import ExpressionBuilder
from quantrt.regions.expressions.express import emit_nodes, why_not_expressible
from quantrt.regions.expressions.from_onnx import is_elementwise, why_not_elementwise
from quantrt.regions.facts.facts import Facts
from quantrt.regions.region import Mismatch, Region

__all__ = ["MAX_INSTRUCTIONS", "MAX_TENSORS", "fuse_epilogue", "fuse_gate"]

MAX_TENSORS = 4
"""Tensor operands of an epilogue: each needs a tile of registers beside the accumulators."""

MAX_INSTRUCTIONS = 24
MAX_OUTPUTS = 2


def fuse_epilogue(
    anchor: Anchor, facts: Facts, clusters: Clusters, claimed: Collection[int]
) -> tuple[Region, list[Mismatch]]:
    """The region of a product with the nodes behind it that fit; their groups in `clusters` are merged.

    Nodes are taken one by one in topological order; of what was taken, the longest beginning is kept that
    stores one result, or two of which the second is not read by what could be computed from the first.

    Args:
        claimed: nodes that belong to other regions.
    """
    growth = _Growth(anchor, facts, clusters, claimed)
    growth.grow()
    kept = growth.taken[: growth.best]
    clusters.merge([*anchor.positions, *kept])
    for position in growth.taken[growth.best :]:
        growth.refuse(position, "what it reads is needed elsewhere too")
    region = _region(anchor, kept, facts)
    return region, growth.refused


def fuse_gate(
    anchor: Anchor, facts: Facts, clusters: Clusters, claimed: Collection[int]
) -> tuple[Region, list[Mismatch]] | Mismatch:
    """`fuse_epilogue` of a product whose halves meet again behind it; why they do not meet inside of it."""
    growth = _Growth(anchor, facts, clusters, claimed)
    growth.grow()
    members = [*anchor.positions, *growth.taken[: growth.best]]
    halves = {value.name for value in anchor.results}
    if growth.best and not halves & set(facts.crossing(members)[1]) and clusters.can_merge(members):
        return fuse_epilogue(anchor, facts, clusters, claimed)
    is_shared = halves & set(facts.crossing([*anchor.positions, *growth.taken])[1])
    reason = "half of its columns are needed elsewhere too" if is_shared else "its halves do not meet"
    reason = growth.refused[0].reason if growth.refused else reason
    return Mismatch("gated activation", reason, facts.nodes[anchor.members[0]].name or "")


@dataclass
class _Growth:
    """An epilogue as it grows: the nodes taken, and how many of them are worth keeping."""

    anchor: Anchor
    facts: Facts
    clusters: Clusters
    claimed: Collection[int]
    taken: list[int] = field(default_factory=list)
    best: int = 0
    refused: list[Mismatch] = field(default_factory=list)

    def grow(self) -> None:
        """Take every reader of what was taken that fits, from the first to the last of the graph."""
        waiting = [reader for value in self.anchor.results for reader in self.facts.readers_of(value)]
        waiting = sorted(set(waiting) - set(self.anchor.members))
        seen = set(waiting)
        heapq.heapify(waiting)
        while waiting:
            position = heapq.heappop(waiting)
            if not self._is_expected(position):
                continue
            reason = self._why_not(position)
            if reason is not None:
                self.refuse(position, reason)
                continue
            self.taken.append(position)
            if _is_worth_keeping([*self.anchor.positions, *self.taken], self.facts, self.claimed):
                self.best = len(self.taken)
            for reader in set(self.facts.readers_of(self.facts.nodes[position].outputs[0])) - seen:
                seen.add(reader)
                heapq.heappush(waiting, reader)

    def refuse(self, position: int, reason: str) -> None:
        """Note why a node is not taken."""
        self.refused.append(Mismatch("epilogue", reason, self.facts.nodes[position].name or ""))

    def _is_expected(self, position: int) -> bool:
        """Whether a node is elementwise at all, and free."""
        node = self.facts.nodes[position]
        return position not in self.claimed and is_elementwise(node)

    def _why_not(self, position: int) -> str | None:
        node = self.facts.nodes[position]
        reason = why_not_elementwise(node, self.facts)
        if reason is not None:
            return reason
        members = [*self.anchor.positions, *self.taken]
        made = {value for member in members for value in self.facts.nodes[member].outputs}
        for value in node.inputs:
            if value is not None and value not in made and not _is_operand(value, self.anchor, self.facts):
                return f"'{value.name}' is neither a number, nor one per channel, nor of the result's shape"
        if not self.clusters.can_merge([*members, position]):
            return "another of its inputs depends on the product's result"
        builder = _written(self.anchor, [*self.taken, position], self.facts)[0]
        if builder.tensor_count() > MAX_TENSORS:
            return f"the epilogue would read more than {MAX_TENSORS} tensors"
        if len(builder.instructions) > MAX_INSTRUCTIONS:
            return f"the epilogue would have more than {MAX_INSTRUCTIONS} instructions"
        return None


def _is_operand(value: ir.Value, anchor: Anchor, facts: Facts) -> bool:
    array = constant_of(value)
    shape = facts.sizes.shape(anchor.result)
    if array is None and facts.is_activation(value) and anchor.takes_images:
        return facts.sizes.same(value, anchor.result) or is_per_image(facts.sizes.shape(value), shape)
    if array is None:
        is_row = anchor.takes_rows and is_per_row(facts.sizes.shape(value), shape)
        return facts.is_activation(value) and (is_row or facts.sizes.same(value, anchor.result))
    if array.ndim > (1 if shape is None else len(shape)):
        return False
    return array.size == 1 or is_per_channel(array.shape, anchor.channels, anchor.channels_axis)


def _is_worth_keeping(positions: Sequence[int], facts: Facts, claimed: Collection[int]) -> bool:
    """Whether the nodes store one value, or a second one that saves its reader the way through the first."""
    _, outputs = facts.crossing(positions)
    if len(outputs) <= 1:
        return True
    if len(outputs) > MAX_OUTPUTS:
        return False
    inside = set(positions)
    readers = [p for name in outputs[1:] for p in facts.readers.get(name, ()) if p not in inside]
    return all(
        reader in claimed or why_not_expressible(facts.nodes[reader], facts) is not None for reader in readers
    )


def _written(
    anchor: Anchor, positions: Sequence[int], facts: Facts
) -> tuple[ExpressionBuilder, dict[str, int]]:
    builder = ExpressionBuilder()
    starts = zip(anchor.results, anchor.start(builder), strict=True)
    registers = {value.name or "": register for value, register in starts}
    emit_nodes(facts, positions, builder, registers)
    return builder, registers


def _region(anchor: Anchor, positions: Sequence[int], facts: Facts) -> Region:
    members = sorted([*anchor.positions, *positions])
    builder, registers = _written(anchor, positions, facts)
    _, outputs = facts.crossing(members)
    epilogue = builder.build([registers[name] for name in outputs], [False] * len(outputs))
    read = (value.name or "" for value in (anchor.x, *anchor.more))
    names = (*read, *(x.name for x in epilogue.operands if x.kind == "tensor"))
    return Region(
        facts.nodes[anchor.position].name or "",
        anchor.formula(epilogue),
        tuple(facts.nodes[position].name or "" for position in members),
        tuple(dict.fromkeys(names)),
        outputs,
    )
