# SPDX-License-Identifier: Apache-2.0
"""Chains of elementwise nodes and reductions over rows, grown as large as one kernel computes well."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx_ir as ir

from quantrt.ir.edit import constant_of
from quantrt.regions.builder import ExpressionBuilder
from quantrt.regions.clusters import Clusters
from quantrt.regions.express import emit_nodes, operands_of, why_not_expressible
from quantrt.regions.facts import Facts
from quantrt.regions.region import Mismatch, Region, Rows
from quantrt.regions.row_operators import is_row_operator
from quantrt.regions.shape_rules import Shape, broadcast

__all__ = ["MAX_INSTRUCTIONS", "MAX_OUTPUTS", "MAX_TENSORS", "find_rows"]

MAX_TENSORS = 8
MAX_INSTRUCTIONS = 48
MAX_OUTPUTS = 4


def find_rows(
    facts: Facts, clusters: Clusters, claimed: Collection[int]
) -> tuple[list[Region], list[Mismatch]]:
    """Regions of all nodes outside `claimed` that an expression can be; their groups are merged."""
    mismatches: list[Mismatch] = []
    free: set[int] = set()
    for position, node in enumerate(facts.nodes):
        if position in claimed or not facts.is_read(node.outputs[0]):
            continue
        reason = why_not_expressible(node, facts)
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
    shape = _iteration_shape(members, facts)
    if shape is None:
        return "sizes that are not known to be equal meet"
    inputs, outputs = facts.crossing(members)
    made = {value.name or "": value for member in members for value in facts.nodes[member].outputs}
    for name in outputs:
        if not _is_whole(made[name], shape, facts) and not _is_row(made[name], shape, facts):
            return f"'{name}' is read elsewhere and has a smaller shape"
    for member in members:
        if is_row_operator(facts.nodes[member]) and not _is_reducible(facts.nodes[member], shape, facts):
            return "rows of different shapes would be reduced"
    if len(inputs) > MAX_TENSORS:
        return f"it would read more than {MAX_TENSORS} tensors"
    if len(outputs) > MAX_OUTPUTS:
        return f"it would store more than {MAX_OUTPUTS} tensors"
    builder = ExpressionBuilder()
    emit_nodes(facts, members, builder, {})
    if len(builder.instructions) > MAX_INSTRUCTIONS:
        return f"it would have more than {MAX_INSTRUCTIONS} instructions"
    return None


def _iteration_shape(members: Sequence[int], facts: Facts) -> Shape | ir.Value | None:
    """What all operands broadcast to: sizes, or an operand whose shape all others have or are numbers."""
    made = {value for member in members for value in facts.nodes[member].outputs}
    read = {value: None for member in members for value in operands_of(facts.nodes[member])}
    values = [value for value in read if value is not None and value not in made]
    shape = broadcast([facts.sizes.shape(value) for value in values])
    if shape is not None:
        return shape
    full = [value for value in values if not _is_number(value)]
    return full[0] if all(facts.sizes.same(full[0], value) for value in full) else None


def _is_number(value: ir.Value) -> bool:
    array = constant_of(value)
    return array is not None and array.ndim == 0


def _is_whole(value: ir.Value, shape: Shape | ir.Value, facts: Facts) -> bool:
    if isinstance(shape, ir.Value):
        return facts.sizes.same(value, shape)
    return facts.sizes.shape(value) == shape


def _is_row(value: ir.Value, shape: Shape | ir.Value, facts: Facts) -> bool:
    """Whether a value has one element for every row of the iteration shape."""
    return not isinstance(shape, ir.Value) and facts.sizes.shape(value) == (*shape[:-1], 1)


def _is_reducible(node: ir.Node, shape: Shape | ir.Value, facts: Facts) -> bool:
    """Whether what a node reduces has the rows of the iteration shape: each is reduced once, and whole."""
    source = facts.sizes.shape(node.inputs[0])
    return not isinstance(shape, ir.Value) and source == shape


def _region(members: Sequence[int], facts: Facts) -> Region:
    builder = ExpressionBuilder()
    registers: dict[str, int] = {}
    emit_nodes(facts, members, builder, registers)
    _, outputs = facts.crossing(members)
    shape = _iteration_shape(members, facts)
    made = {value.name or "": value for member in members for value in facts.nodes[member].outputs}
    rows = [
        shape is not None and not _is_whole(made[x], shape, facts) and _is_row(made[x], shape, facts)
        for x in outputs
    ]
    expression = builder.build([registers[name] for name in outputs], rows)
    return Region(
        facts.nodes[members[-1]].name or "",
        Rows(expression),
        tuple(facts.nodes[position].name or "" for position in members),
        tuple(dict.fromkeys(x.name for x in expression.operands if x.kind == "tensor")),
        outputs,
    )
