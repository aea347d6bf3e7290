# SPDX-License-Identifier: Apache-2.0
"""Maps of pixels that become rows of tokens, and rows that become maps, by way of channels last.

    [N, C, H, W] -> Reshape [N, G, D, H W] -> Transpose [N, G, H W, D]
    [N, C, H, W] -> Transpose [N, H, W, C] -> Reshape [N, H W, G, D] -> Transpose [N, G, H W, D]

    [N, G, H W, D] -> Transpose [N, G, D, H W] -> Reshape [N, C, H, W]
    [N, G, H W, D] -> Transpose [N, H W, G, D] -> Reshape [N, H, W, C] -> Transpose [N, C, H, W]

OpenVINO's convolutions have channels last in memory, whatever the order of axes is called: a Transpose to or
from there moves nothing, and what is left moves rows of D, or nothing where there is one group. In the first
form a map is put into the other order, and then turned number by number. EfficientViT-B1 in int8 takes
4.81 ms so, and 5.68 as NNCF leaves it (docs/results/zoo-peers-cpu.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import (
    add_constant,
    all_names,
    constant_of,
    is_operator,
    only_consumer,
    order_of,
    take_name,
    take_place,
)
from quantrt.plan.openvino.maps_as_rows import POINTWISE

__all__ = ["known_sizes", "turn_last"]

MAP_RANK = 4
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Orders of axes that put a map's channels last, and first again."""

SPATIAL = ("AveragePool", "Conv", "ConvTranspose", "MaxPool")
"""What computes with channels last."""

ALIKE = (*POINTWISE, "Concat")
"""What computes in the order that it is given."""

MAX_STEPS = 12


def turn_last(graph: ir.Model) -> None:
    """Turn such maps and rows where channels are last; in place."""
    ends = list(_ends(graph))
    taken = all_names(graph) if ends else set()
    for first, second, write in ends:
        write(graph, first, second, taken)


_Write = Callable[[ir.Model, ir.Node, ir.Node, set[str]], None]


def _ends(graph: ir.Model) -> Iterator[tuple[ir.Node, ir.Node, _Write]]:
    """Pairs of nodes, one behind the other, that make tokens of a map or a map of tokens."""
    for node in graph.graph:
        follower = only_consumer(node.outputs[0]) if is_operator(node, "Reshape", "Transpose") else None
        if follower is None or follower.graph is not node.graph:
            continue
        if is_operator(node, "Reshape") and is_operator(follower, "Transpose"):
            if _makes_tokens(node, follower):
                yield node, follower, _write_tokens
        elif is_operator(node, "Transpose") and is_operator(follower, "Reshape"):
            if _makes_map(node, follower):
                yield node, follower, _write_map


def _makes_tokens(view: ir.Node, turn: ir.Node) -> bool:
    """Whether pixels come before the last part of the channels, of a map that has channels last."""
    order, parts = order_of(turn), known_sizes(view.outputs[0])
    is_view = _is_view_of_map(known_sizes(view.inputs[0]), parts)
    is_turned = order is not None and parts is not None and order[0] == 0 and order[-1] == len(parts) - 1
    return is_view and is_turned and _is_near(view.inputs[0], _makers)


def _makes_map(turn: ir.Node, view: ir.Node) -> bool:
    """Whether rows of the last part of the channels become a map that is read with channels last."""
    order, parts = order_of(turn), known_sizes(turn.outputs[0])
    is_view = _is_view_of_map(known_sizes(view.outputs[0]), parts)
    is_turned = order is not None and parts is not None and order[0] == 0 and order[-2] == len(parts)
    return is_view and is_turned and _is_near(view.outputs[0], _readers)


def _is_view_of_map(image: Sequence[int] | None, parts: Sequence[int] | None) -> bool:
    """Whether parts of the channels, and then pixels, are all that a map [C, H, W] has."""
    if image is None or parts is None or len(parts) < 2 or len(image) != MAP_RANK - 1:
        return False
    return parts[-1] == image[1] * image[2] and prod(parts[:-1]) == image[0]


def known_sizes(value: ir.Value | None) -> list[int] | None:
    """All sizes behind the first; None where one of them is not known."""
    if value is None or value.shape is None:
        return None
    sizes = [size for size in value.shape[1:] if isinstance(size, int)]
    return sizes if len(sizes) == len(value.shape) - 1 else None


def _is_near(value: ir.Value | None, step: Callable[[ir.Value], Iterable[ir.Node]]) -> bool:
    """Whether what computes with channels last is reached in one direction, through ALIKE alone."""
    values = [value]
    for _ in range(MAX_STEPS):
        nodes = [node for each in values if each is not None for node in step(each)]
        if any(is_operator(node, *SPATIAL) for node in nodes):
            return True
        alike = [node for node in nodes if is_operator(node, *ALIKE)]
        values = [
            each
            for node in alike
            for each in (node.outputs if step is _readers else node.inputs)
            if each is not None and constant_of(each) is None
        ]
    return False


def _makers(value: ir.Value) -> Iterable[ir.Node]:
    node = value.producer()
    return () if node is None else (node,)


def _readers(value: ir.Value) -> Iterable[ir.Node]:
    return (use.node for use in value.uses())


def _write_tokens(graph: ir.Model, view: ir.Node, turn: ir.Node, taken: set[str]) -> None:
    """Channels last, pixels before their parts, and then the order that was wanted."""
    (*parts, pixels), order = known_sizes(view.outputs[0]) or [], order_of(turn) or ()
    places = (0, *range(2, len(parts) + 2), 1)  # of axes of the first form in the second
    writer = _Writer(graph, taken, view.name or "")
    value = writer.transpose(view.inputs[0], LAST)
    value = writer.reshape(value, (pixels, *parts))
    value = writer.transpose(value, tuple(places[axis] for axis in order))
    take_place(graph, turn, writer.nodes, value)
    graph.graph.remove(view, safe=True)


def _write_map(graph: ir.Model, turn: ir.Node, view: ir.Node, taken: set[str]) -> None:
    """Pixels before the parts of their channels, and a map with channels last called in the other order."""
    order, (channels, *size) = order_of(turn) or (), known_sizes(view.outputs[0]) or []
    writer = _Writer(graph, taken, view.name or "")
    value = writer.transpose(turn.inputs[0], (0, order[-1], *order[1:-1]))
    value = writer.reshape(value, (*size, channels))
    value = writer.transpose(value, FIRST)
    take_place(graph, view, writer.nodes, value)
    graph.graph.remove(turn, safe=True)


class _Writer:
    """Nodes behind each other, with names of their own."""

    def __init__(self, graph: ir.Model, taken: set[str], name: str) -> None:
        self._graph, self._taken, self._name = graph, taken, name
        self.nodes: list[ir.Node] = []

    def transpose(self, value: ir.Value | None, order: tuple[int, ...]) -> ir.Value:
        """A Transpose, where the order is another."""
        assert value is not None
        if order == tuple(range(len(order))):
            return value
        return self._add(ir.node("Transpose", [value], {"perm": list(order)}), value)

    def reshape(self, value: ir.Value, sizes: tuple[int, ...]) -> ir.Value:
        """A Reshape to these sizes behind the first, which stays."""
        shape = add_constant(self._graph, f"{self._name}_sizes", np.array([0, *sizes], np.int64), self._taken)
        return self._add(ir.node("Reshape", [value, shape]), value)

    def _add(self, node: ir.Node, like: ir.Value) -> ir.Value:
        node.name = node.outputs[0].name = take_name(f"{self._name}_last{len(self.nodes)}", self._taken)
        node.outputs[0].type = like.type
        self.nodes.append(node)
        return node.outputs[0]
