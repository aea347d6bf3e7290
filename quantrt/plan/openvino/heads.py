# SPDX-License-Identifier: Apache-2.0
"""Queries, keys and values that one product makes, each made by a product of its own.

    x @ W + b -> Reshape [B, S, 3, H, D] -> Transpose [3, B, H, S, D] -> Split -> Squeeze -> Q -> DQ
    x @ W_j + b_j -> Q -> DQ -> Reshape [B, S, H, D] -> Transpose [B, H, S, D]            of j = q, k, v

OpenVINO quantizes what a product makes in the product's kernel, where nothing moves it before, and lets the
kernel of attention read queries and values in whatever order their axes have. In the first form one kernel
turns all five axes, and three more quantize: a ViT was slower so than NNCF's, and is faster
(docs/results/assignment-peers-cpu.md). Every number is what it was: what is computed of all elements alike
may come before axes are turned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import (
    add_constant,
    constant_of,
    int_attribute,
    is_operator,
    only_consumer,
    order_of,
    take_name,
    taken_names,
)
from quantrt.model.passes.remove_unused import remove_unused

__all__ = ["split_heads"]

VIEWED_RANK = 5
"""Of [B, S, parts, H, D]."""

PARTS_AXIS = 2

ALIKE = ("DequantizeLinear", "Div", "Mul", "QuantizeLinear")
"""What computes all elements alike, where its other inputs are single numbers."""


@dataclass(frozen=True)
class _Part:
    """One of the things that a product makes.

    Attributes:
        index: its place along the axis of parts.
        alike: nodes behind it that compute all elements alike, in their order.
        turns: Transpose nodes with the orders that they give to four axes, [B, S, H, D] at first.
        result: what the last of all these nodes makes.
    """

    index: int
    alike: tuple[ir.Node, ...]
    turns: tuple[tuple[ir.Node, tuple[int, ...]], ...]
    result: ir.Value


@dataclass(frozen=True)
class _Joined:
    """A product that makes several parts at once, which a view and a Transpose then take apart.

    Attributes:
        add: of its bias; None without one.
        heads, width: of each part.
    """

    product: ir.Node
    add: ir.Node | None
    view: ir.Node
    heads: int
    width: int
    parts: tuple[_Part, ...]


def split_heads(graph: ir.Model) -> None:
    """Make queries, keys and values by products of their own; in place."""
    found = [joined for node in graph.graph if (joined := _joined(node)) is not None]
    if not found:
        return
    taken = taken_names(graph)
    for joined in found:
        for part in joined.parts:
            _Apart(graph, joined, part, taken).make()
    remove_unused(graph)


def _joined(turn: ir.Node) -> _Joined | None:
    """What is taken apart by a Transpose that puts the axis of parts first; None where it is not that."""
    perm = order_of(turn) or ()
    if not is_operator(turn, "Transpose") or len(perm) != VIEWED_RANK or perm[0] != PARTS_AXIS:
        return None
    view = _only_maker(turn.inputs[0], "Reshape")
    sizes = None if view is None else _viewed(view)
    if view is None or sizes is None:
        return None
    add = _only_maker(view.inputs[0], "Add")
    product = _only_maker(view.inputs[0] if add is None else _varying(add), "MatMul")
    count, heads, width = sizes
    if product is None or _columns(product.inputs[1]) != count * heads * width:
        return None
    if add is not None and _bias(add).shape != (count * heads * width,):
        return None
    order = tuple(axis - (axis > PARTS_AXIS) for axis in perm[1:])
    parts = tuple(_parts(turn, order))
    is_whole = sorted(part.index for part in parts) == list(range(count))
    return _Joined(product, add, view, heads, width, parts) if is_whole else None


def _only_maker(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The operator that makes a value which one node alone reads."""
    node = None if value is None or only_consumer(value) is None else value.producer()
    return node if is_operator(node, op_type) else None


def _varying(add: ir.Node) -> ir.Value | None:
    """The one of two inputs that is no constant."""
    first, second = add.inputs
    return second if constant_of(first) is not None else first


def _bias(add: ir.Node) -> np.ndarray:
    """The other; empty where there is none."""
    found = (constant_of(value) for value in add.inputs)
    return next((array for array in found if array is not None), np.empty(0))


def _viewed(view: ir.Node) -> tuple[int, int, int] | None:
    """Parts, heads and elements of a head where a Reshape takes the last of three axes apart in these."""
    before, after = (None if value is None else value.shape for value in (view.inputs[0], view.outputs[0]))
    if before is None or after is None or len(before) != VIEWED_RANK - 2 or len(after) != VIEWED_RANK:
        return None
    sizes = [size for size in after[PARTS_AXIS:] if isinstance(size, int)]
    # With the axis of tokens that of images stays too: there are as many elements as before.
    is_kept = isinstance(before[1], int) and before[1] == after[1]
    return (sizes[0], sizes[1], sizes[2]) if is_kept and len(sizes) == VIEWED_RANK - PARTS_AXIS else None


def _decoder(weight: ir.Value | None) -> ir.Node | None:
    """What makes a matrix of constant codes, with one scale or one per column."""
    node = None if weight is None else weight.producer()
    if node is None or not is_operator(node, "DequantizeLinear") or int_attribute(node, "block_size", 0):
        return None
    constants = [constant_of(value) for value in node.inputs]
    is_by_column = int_attribute(node, "axis", 1) in (1, -1)
    is_known = all(array is not None and (array.size == 1 or is_by_column) for array in constants[1:])
    return node if is_known and constants[0] is not None else None


def _columns(weight: ir.Value | None) -> int | None:
    """Of a constant matrix, in codes or not."""
    decoder = _decoder(weight)
    array = constant_of(weight if decoder is None else decoder.inputs[0])
    return array.shape[1] if array is not None and array.ndim == 2 else None


def _parts(turn: ir.Node, order: tuple[int, ...]) -> Iterator[_Part]:
    """Every part that can be made by itself; none where something else is read too."""
    value = turn.outputs[0]
    readers = [use.node for use in value.uses()]
    picks = [_picks(reader) for reader in readers]
    if value.is_graph_output() or not all(picks):
        return
    for reader, found in zip(readers, picks, strict=True):
        has_axis = not is_operator(reader, "Gather")
        for index, made in found:
            yield from _followed(index, made, (turn, order), has_axis=has_axis)


def _picks(node: ir.Node) -> Sequence[tuple[int, ir.Value]]:
    """Places along the first axis that a node picks one by one, with what it makes of each."""
    if is_operator(node, "Split") and int_attribute(node, "axis", 0) == 0:
        is_each = all(value.shape is not None and value.shape[0] == 1 for value in node.outputs)
        return tuple(enumerate(node.outputs)) if is_each else ()
    constants = [constant_of(value) for value in node.inputs[1:]]
    numbers = [array.item() for array in constants if array is not None and array.size == 1]
    if len(numbers) != len(constants):
        return ()
    if is_operator(node, "Gather") and int_attribute(node, "axis", 0) == 0:
        is_one = numbers[0] >= 0 and constants[0] is not None and constants[0].ndim == 0
        return ((numbers[0], node.outputs[0]),) if is_one else ()
    if is_operator(node, "Slice") and len(numbers) > 2:
        start, end, axis, *step = numbers
        is_one = axis == 0 and 0 <= start == end - 1 and step in ([], [1])
        return ((start, node.outputs[0]),) if is_one else ()
    return ()


def _followed(
    index: int, value: ir.Value, turn: tuple[ir.Node, tuple[int, ...]], *, has_axis: bool
) -> Iterator[_Part]:
    """A part with what can be computed before its axes are turned.

    Args:
        has_axis: whether its first axis is still that of the parts.
    """
    alike: list[ir.Node] = []
    turns = [turn]
    while (node := only_consumer(value)) is not None:
        if has_axis and is_operator(node, "Squeeze") and _is_first_axis(node):
            has_axis = False
        elif not has_axis and is_operator(node, "Transpose") and (order := order_of(node)):
            turns.append((node, order))
        elif is_operator(node, *ALIKE) and _is_alike(node, value):
            alike.append(node)
        else:
            break
        value = node.outputs[0]
    if not has_axis and not value.is_graph_output():
        yield _Part(index, tuple(alike), tuple(turns), value)


def _is_first_axis(squeeze: ir.Node) -> bool:
    axes = constant_of(squeeze.inputs[1]) if len(squeeze.inputs) > 1 else None
    return axes is not None and axes.tolist() == [0]


def _is_alike(node: ir.Node, value: ir.Value) -> bool:
    """Whether all else that a node reads is single numbers, which add no axes."""
    others = [each for each in node.inputs if each is not value]
    arrays = [constant_of(each) for each in others if each is not None]
    is_alike = all(array is not None and array.size == 1 and array.ndim <= 1 for array in arrays)
    return is_alike and (is_operator(node, "Mul") or node.inputs[0] is value)


class _Apart:
    """Makes one part, in front of the product that makes all of them."""

    def __init__(self, graph: ir.Model, joined: _Joined, part: _Part, taken: set[str]) -> None:
        self._graph = graph
        self._joined = joined
        self._part = part
        self._taken = taken
        size = joined.heads * joined.width
        self._columns = slice(part.index * size, (part.index + 1) * size)
        self._suffix = f"/part_{part.index}"

    def make(self) -> None:
        """Let who reads the part read what is made of it alone."""
        joined, part = self._joined, self._part
        product, view = joined.product, joined.view
        value = self._add("MatMul", [product.inputs[0], self._weight()], product)
        if joined.add is not None:
            bias = self._constant(joined.add, "bias", _bias(joined.add)[self._columns])
            value = self._add("Add", [value, bias], joined.add)
        for node in part.alike:
            inputs = [value if constant_of(each) is None else each for each in node.inputs]
            value = self._add(node.op_type, inputs, node, list(node.attributes.values()))
        sizes = np.array([0, 0, joined.heads, joined.width], np.int64)
        value = self._add("Reshape", [value, self._constant(view, "sizes", sizes)], view)
        for turn, perm in part.turns:
            value = self._add("Transpose", [value], turn, [ir.AttrInt64s("perm", perm)])
        value.shape = part.result.shape
        part.result.replace_all_uses_with(value)

    def _weight(self) -> ir.Value | None:
        """The columns of the part; codes stay codes."""
        decoder = _decoder(self._joined.product.inputs[1])
        if decoder is None:
            return self._cut(self._joined.product, self._joined.product.inputs[1], "weight")
        names = ("codes", "scale", "zero_point")
        inputs = [self._cut(decoder, each, name) for each, name in zip(decoder.inputs, names, strict=False)]
        return self._add("DequantizeLinear", inputs, decoder, list(decoder.attributes.values()))

    def _cut(self, reader: ir.Node, value: ir.Value | None, name: str) -> ir.Value | None:
        array = constant_of(value)
        if array is None or array.size == 1:
            return value
        return self._constant(reader, name, array[..., self._columns])

    def _constant(self, reader: ir.Node, name: str, array: np.ndarray) -> ir.Value:
        return add_constant(self._graph, f"{reader.name}_{name}{self._suffix}", array, self._taken)

    def _add(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        like: ir.Node,
        attributes: Sequence[ir.Attr] = (),
    ) -> ir.Value:
        """What a new node makes, which is called as another one."""
        name = f"{like.name}{self._suffix}"
        node = ir.Node("", op_type, inputs, attributes, num_outputs=1, name=name)
        made = node.outputs[0]
        made.name = take_name(f"{like.outputs[0].name}{self._suffix}", self._taken)
        made.type = like.outputs[0].type
        self._graph.graph.insert_before(self._joined.product, node)
        return made
