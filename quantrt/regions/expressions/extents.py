# SPDX-License-Identifier: Apache-2.0
"""Shapes inside one expression: for every axis, the sizes that meet there when operands are broadcast.

Sizes that are not known to be equal may meet: two values in which the same sizes meet have the same shape
whatever those sizes are, because at run time each of them is 1 or what the axis has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from quantrt.ir.edit import constant_of
from quantrt.regions.expressions.express import operands_of
from quantrt.regions.expressions.lookup import index_of, is_lookup, table_of
from quantrt.regions.expressions.row_operators import is_row_operator
from quantrt.regions.facts.contents import Dim
from quantrt.regions.facts.facts import Facts
from quantrt.regions.facts.shape_rules import Shape

__all__ = ["Extents", "find_extents"]

Extent = tuple[frozenset[Dim], ...]


@dataclass(frozen=True)
class Extents:
    """Shapes of the values of an expression.

    Attributes:
        iteration: what all operands broadcast to.
        of: by name, of the values that its nodes make and of those that they read.
    """

    iteration: Extent
    of: dict[str, Extent]

    def is_whole(self, name: str) -> bool:
        """Whether a value has one element for every element of the iteration shape."""
        return self.of[name] == self.iteration

    def is_row(self, name: str) -> bool:
        """Whether a value has one element for every row, and rows have more than one."""
        return not self.is_whole(name) and self.of[name] == (*self.iteration[:-1], frozenset())


def find_extents(members: Sequence[int], facts: Facts) -> Extents | None:
    """The extents of nodes, given in topological order, that are one expression.

    None where an operand's shape is not known at all, unless all operands but numbers have the same one.
    """
    of: dict[str, Extent] = {}
    made = {value.name for member in members for value in facts.nodes[member].outputs}
    read = {x.name or "": x for member in members for x in operands_of(facts.nodes[member]) if x is not None}
    operands = [value for name, value in read.items() if name not in made]
    lookups = [facts.nodes[member] for member in members if is_lookup(facts.nodes[member])]
    indices = {index_of(node).name for node in lookups}
    is_uniform = not lookups and _is_uniform(operands, facts)
    for value in operands:
        shape = facts.sizes.shape(value)
        if shape is None and not is_uniform:
            return None
        of[value.name or ""] = _extent(shape) if not is_uniform else _uniform_extent(value)
        if value.name in indices:
            of[value.name or ""] += (frozenset(),)  # one number for a whole row
    columns = {node.name: _extent(facts.sizes.shape(table_of(node)))[1:] for node in lookups}
    iteration = _joined([*of.values(), *columns.values()])
    for member in members:
        node = facts.nodes[member]
        parts = [of[value.name or ""] for value in operands_of(node) if value is not None]
        if is_row_operator(node) and node.op_type.startswith("Reduce"):
            of[node.outputs[0].name or ""] = (*parts[0][:-1], frozenset())
        elif node.name in columns:
            of[node.outputs[0].name or ""] = (*parts[0][:-1], *columns[node.name])
        else:
            of[node.outputs[0].name or ""] = _joined(parts)
    return Extents(iteration, of)


def _is_uniform(operands: Sequence[ir.Value], facts: Facts) -> bool:
    """Whether some shape is unknown, yet all operands but numbers are known to have the same one."""
    full = [value for value in operands if not _is_number(value)]
    if not full or all(facts.sizes.shape(value) is not None for value in full):
        return False
    return all(facts.sizes.same(full[0], value) for value in full)


def _is_number(value: ir.Value) -> bool:
    array = constant_of(value)
    return array is not None and array.ndim == 0


def _uniform_extent(value: ir.Value) -> Extent:
    """One axis that stands for all of an unknown shape; none for a number."""
    return () if _is_number(value) else (frozenset({"unknown"}),)


def _extent(shape: Shape | None) -> Extent:
    return tuple(frozenset({dim} - {1}) for dim in shape or ())


def _joined(parts: Iterable[Extent]) -> Extent:
    """Broadcast: aligned at the last axis; a number stands for every symbol that it meets."""
    known = list(parts)
    rank = max((len(part) for part in known), default=0)
    axes: list[frozenset[Dim]] = []
    for axis in range(-rank, 0):
        sizes: frozenset[Dim] = frozenset().union(*(part[axis] for part in known if len(part) >= -axis))
        numbers = frozenset(size for size in sizes if isinstance(size, int))
        axes.append(numbers or sizes)
    return tuple(axes)
