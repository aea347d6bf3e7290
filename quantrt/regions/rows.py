# SPDX-License-Identifier: Apache-2.0
"""Chains of elementwise nodes and reductions over rows, grown as large as one kernel computes well."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from quantrt.regions.clusters import Clusters
from quantrt.regions.expressions.builder import ExpressionBuilder
from quantrt.regions.expressions.express import emit_nodes, operands_of, why_not_expressible
from quantrt.regions.expressions.extents import find_extents
from quantrt.regions.expressions.lookup import is_large, is_lookup
from quantrt.regions.expressions.row_operators import is_row_operator
from quantrt.regions.facts.facts import Facts
from quantrt.regions.region import Mismatch, Region, Rows

__all__ = ["MAX_INSTRUCTIONS", "MAX_OUTPUTS", "MAX_TENSORS", "find_rows"]

MAX_TENSORS = 8
MAX_INSTRUCTIONS = 48
MAX_OUTPUTS = 4

MAX_OPERANDS = 12
"""Of an expression with lookups, with a scale for each that is quantized and for each output."""


def find_rows(
    facts: Facts, clusters: Clusters, claimed: Collection[int]
) -> tuple[list[Region], list[Mismatch]]:
    """Regions of all nodes outside `claimed` that an expression can be; their groups are merged."""
    mismatches: list[Mismatch] = []
    free: set[int] = set()
    for position, node in enumerate(facts.nodes):
        if position in claimed or not facts.is_read(node.outputs[0]):
            continue
        reason = why_not_expressible(node, facts) or _why_not_alone(position, facts)
        if reason is None:
            free.add(position)
        elif is_row_operator(node):
            mismatches.append(Mismatch("rows", reason, node.name or ""))
    for position in sorted(free):
        mismatches += _join_producers(position, facts, clusters, free)
    groups = {clusters.group_of(position) for position in free}
    return [_region(clusters.members(group), facts) for group in sorted(groups)], mismatches


def _join_producers(position: int, facts: Facts, clusters: Clusters, free: Collection[int]) -> list[Mismatch]:
    """Merge a node with the groups that make its inputs, the nearest first."""
    node = facts.nodes[position]
    makers = {facts.maker_of(value) for value in operands_of(node)}
    mismatches = []
    for maker in sorted((m for m in makers if m is not None and m in free), reverse=True):
        group, other = clusters.group_of(position), clusters.group_of(maker)
        if group == other:
            continue
        members = sorted([*clusters.members(group), *clusters.members(other)])
        reason = _why_not(members, facts)
        if reason is None and not clusters.merge([position, maker]):
            reason = "another node stands between them"
        if reason is not None:
            mismatches.append(Mismatch("rows", reason, node.name or ""))
    return mismatches


def _why_not(members: Sequence[int], facts: Facts) -> str | None:
    """Why nodes cannot be one expression."""
    extents = find_extents(members, facts)
    if extents is None:
        return "the shape of something that it reads is not known"
    inputs, outputs = facts.crossing(members)
    for name in outputs:
        if not extents.is_whole(name) and not extents.is_row(name):
            return f"'{name}' is read elsewhere and has a smaller shape"
    sources = [facts.nodes[x].inputs[0] for x in members if is_row_operator(facts.nodes[x])]
    if not all(source is not None and extents.is_whole(source.name or "") for source in sources):
        return "rows of different shapes would be reduced"
    if len(inputs) > MAX_TENSORS:
        return f"it would read more than {MAX_TENSORS} tensors"
    if len(outputs) > MAX_OUTPUTS:
        return f"it would store more than {MAX_OUTPUTS} tensors"
    builder = ExpressionBuilder()
    emit_nodes(facts, members, builder, {})
    if len(builder.instructions) > MAX_INSTRUCTIONS:
        return f"it would have more than {MAX_INSTRUCTIONS} instructions"
    lookups = [facts.nodes[x] for x in members if is_lookup(facts.nodes[x])]
    scales = sum(is_large(node) for node in lookups) + len(outputs)
    if lookups and len(builder.operands) + scales > MAX_OPERANDS:
        return f"with their scales it would have more than {MAX_OPERANDS} operands"
    return None


def _why_not_alone(position: int, facts: Facts) -> str | None:
    """Why a node that can be instructions cannot be a region; unknown shapes are no reason here."""
    return _why_not([position], facts) if find_extents([position], facts) is not None else None


def _region(members: Sequence[int], facts: Facts) -> Region:
    builder = ExpressionBuilder()
    registers: dict[str, int] = {}
    emit_nodes(facts, members, builder, registers)
    _, outputs = facts.crossing(members)
    extents = find_extents(members, facts)
    rows = [extents is not None and extents.is_row(name) for name in outputs]
    expression = builder.build([registers[name] for name in outputs], rows)
    return Region(
        facts.nodes[members[-1]].name or "",
        Rows(expression),
        tuple(facts.nodes[position].name or "" for position in members),
        tuple(dict.fromkeys(x.name for x in expression.operands if x.kind == "tensor")),
        outputs,
    )
