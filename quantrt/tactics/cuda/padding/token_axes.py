# SPDX-License-Identifier: Apache-2.0
"""Which steps of a program compute a token from the same token of other tensors, and so in any order of them.

Products with a weight, expressions over rows, and views that leave tokens whole. Attention too, where it is
told which tokens belong together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import order_of
from quantrt.regions.facts.sizes import Sizes
from quantrt.regions.region import Attention, Gemm, Rows
from quantrt.tactics.cuda.program.assemble import Item
from quantrt.tactics.cuda.program.frame import Frame

__all__ = ["TokenAxes", "find_token_axes"]

Shape = tuple[int | str, ...]

_LEAST_RANK = 3
"""Of a tensor of tokens that is computed: [B, S, C]."""


@dataclass(frozen=True)
class TokenAxes:
    """What may be computed in any order of tokens.

    Attributes:
        items: numbers of the items.
        axes: of every buffer that they make: which axis counts a sample's tokens; axis 0 counts samples.
        reads: for every item, its inputs that hold tokens, by their places.
    """

    items: set[int] = field(default_factory=set)
    axes: dict[str, int] = field(default_factory=dict)
    reads: dict[int, tuple[int, ...]] = field(default_factory=dict)


def find_token_axes(
    frame: Frame, graph: ir.Graph, sizes: Sizes, mask: str, attention: Collection[str]
) -> TokenAxes:
    """The largest part of a program around its attention.

    Args:
        mask: input of the graph, [B, S].
        attention: regions whose attention can be told which tokens belong together.
    """
    finder = _Finder(graph, sizes, mask, attention)
    for number, item in enumerate(frame.items):
        finder.visit(number, item)
    _keep_around(frame.items, finder.found, attention)
    return finder.found


class _Finder:
    def __init__(self, graph: ir.Graph, sizes: Sizes, mask: str, attention: Collection[str]) -> None:
        self._nodes = {node.name or "": node for node in graph}
        made = (value for node in graph for value in node.outputs)
        self._values = {value.name or "": value for value in (*graph.inputs, *made)}
        self._sizes = sizes
        self._attention = attention
        self._whole = (self._shape(mask) or ())[:2]
        self.found = TokenAxes()

    def visit(self, number: int, item: Item) -> None:
        """Note the item where it belongs to the part."""
        found = self._of_step(item) if item.lowered is None else self._of_formula(item)
        if found is None:
            return
        reads, axes = found
        self.found.items.add(number)
        self.found.reads[number] = reads
        self.found.axes.update(zip(item.outputs, axes, strict=True))

    def _of_formula(self, item: Item) -> tuple[tuple[int, ...], list[int]] | None:
        """Which inputs hold tokens, and the axis of every output; None where tokens are mixed."""
        assert item.lowered is not None
        shapes = [self._shape(value) for value, _ in item.lowered.inputs]
        made = [self._shape(value) for value, _ in item.lowered.outputs]
        if isinstance(item.lowered.formula, Attention):
            return self._of_attention(item, item.lowered.formula)
        if not all(self._has_tokens(shape) and len(shape or ()) >= _LEAST_RANK for shape in made):
            return None
        if isinstance(item.lowered.formula, Gemm):
            is_so = all(self._has_tokens(shape) and len(shape or ()) >= _LEAST_RANK for shape in shapes)
            return (tuple(range(len(shapes))), [1] * len(made)) if is_so else None
        if isinstance(item.lowered.formula, Rows):
            rank = len(made[0] or ())
            reads = self._reads_of(item.lowered.formula, shapes, item.lowered.constants or {}, rank)
            return None if reads is None else (reads, [1] * len(made))
        return None

    def _of_attention(self, item: Item, formula: Attention) -> tuple[tuple[int, ...], list[int]] | None:
        axes = [self.found.axes.get(buffer) for buffer in item.inputs[:3]]
        wanted = [2, 3 if formula.is_transposed else 2, 2]
        is_so = item.region in self._attention and axes == wanted
        return ((0, 1, 2), [2] * len(item.outputs)) if is_so else None

    def _reads_of(
        self, formula: Rows, shapes: Sequence[Shape | None], constants: Mapping[str, np.ndarray], rank: int
    ) -> tuple[int, ...] | None:
        """The inputs of an expression over tensors of a rank that hold tokens."""
        lookups = formula.expression.lookups
        reads: list[int] = []
        given = iter(enumerate(shapes))
        for number, operand in enumerate(formula.expression.operands):
            if operand.kind == "tensor":
                place, shape = next(given)
                if shape is None:
                    return None
                own = (*shape, 1) if number in lookups.values() else shape
                if len(own) == rank and self._has_tokens(own):
                    reads.append(place)
                elif not _is_repeated(own, rank):
                    return None
            elif operand.kind == "constant" and not _is_repeated(constants[operand.name].shape, rank):
                return None
        return tuple(reads)

    def _of_step(self, item: Item) -> tuple[tuple[int, ...], list[int]] | None:
        """Of a view."""
        step = item.step
        if step is None or step.runner != "view" or len(step.options["nodes"]) != 1:
            return None
        axis = self.found.axes.get(item.inputs[0])
        if axis is None:
            return None
        node = self._nodes[step.options["nodes"][0]]
        source = self._shape(step.options["values"][0])
        axes = [self._moved(node, axis, source, self._shape(name)) for name in step.options["results"]]
        moved = [axis for axis in axes if axis is not None]
        return ((0,), moved) if len(moved) == len(axes) else None

    def _moved(self, node: ir.Node, axis: int, source: Shape | None, made: Shape | None) -> int | None:
        """Where a view puts the axis of tokens; None where it cuts or joins it."""
        if source is None or made is None:
            return None
        if node.op_type == "Transpose":
            order = order_of(node) or range(len(source))[::-1]
            return order.index(axis) if order[0] == 0 else None
        stays = len(made) == len(source) and all(made[i] == source[i] for i in range(axis + 1))
        is_before = axis == 1 and len(made) >= _LEAST_RANK and self._has_tokens(made)
        return axis if stays or is_before else None

    def _shape(self, value: str) -> Shape | None:
        return self._sizes.shape(self._values.get(value))

    def _has_tokens(self, shape: Shape | None) -> bool:
        return shape is not None and len(self._whole) == 2 and shape[:2] == self._whole


def _is_repeated(shape: Sequence[int | str], rank: int) -> bool:
    """Whether all tokens read the same elements."""
    return len(shape) <= rank and all(size == 1 for size in shape[: max(0, len(shape) - rank + 2)])


def _keep_around(items: Sequence[Item], found: TokenAxes, attention: Collection[str]) -> None:
    """Leave out what no attention is reached from, and views that only others read."""
    groups: dict[str, set[int]] = {}
    for number in sorted(found.items):
        item = items[number]
        read = [item.inputs[place] for place in found.reads[number]]
        joined = {number}.union(*(groups[buffer] for buffer in read if buffer in groups))
        for member in joined:
            groups.update(dict.fromkeys(items[member].outputs, joined))
    around = [number for number in found.items if items[number].region in attention]
    kept = set().union(*(groups[items[number].outputs[0]] for number in around))
    for number in sorted(kept, reverse=True):
        if items[number].step is not None and not any(_readers(items, found, items[number], kept)):
            kept.discard(number)
    found.items.intersection_update(kept)


def _readers(items: Sequence[Item], found: TokenAxes, item: Item, kept: Collection[int]) -> Iterator[int]:
    """Those of the kept items that read the tokens that an item makes."""
    made = set(item.outputs)
    return (
        number for number in kept if made & {items[number].inputs[place] for place in found.reads[number]}
    )
