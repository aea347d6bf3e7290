# SPDX-License-Identifier: Apache-2.0
"""Rows that lie in a map, as one list of them, where they are normalized and multiplied.

    [N, H, W, C] -> LayerNormalization -> MatMul -> Add -> Gelu -> ...
    [N, H, W, C] -> Reshape [N, H W, C] -> LayerNormalization -> MatMul -> Add -> Gelu -> ... -> Reshape

OpenVINO computes a product's bias, activation and quantization in the product's kernel only up to three axes,
and has a kernel that normalizes the last axis only up to there: of four it makes one kernel after the other.
ConvNeXt-T in int8 takes 18.5 ms so, and 24.6 as NNCF leaves it (docs/results/zoo-peers-cpu.md).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import (
    add_constant,
    all_names,
    constant_of,
    int_attribute,
    is_operator,
    take_name,
    take_place,
)
from quantrt.model.passes.remove_unused import remove_unused
from quantrt.plan.openvino.pixels import POINTWISE
from quantrt.plan.openvino.tokens import known_sizes

__all__ = ["list_rows"]

CODING = ("DequantizeLinear", "QuantizeLinear")
ALIKE = (*POINTWISE, "Erf")
"""Operators that compute a list as they compute a map, where all else that they read is a row or a number."""

LIST_RANK = 3


def list_rows(graph: ir.Model) -> None:
    """Make lists of rows in maps where they are normalized and multiplied; in place."""
    if not any(_starts(node) for node in graph.graph):
        return
    lists = _Lists(graph)
    for node in list(graph.graph):
        if _starts(node):
            lists.begin(node)
        elif is_operator(node, *ALIKE):
            lists.carry(node)
    remove_unused(graph)


def _starts(node: ir.Node) -> bool:
    """Whether a node multiplies or normalizes rows of maps whose size is known."""
    if not node.inputs or _sizes(node.inputs[0]) is None or _sizes(node.outputs[0]) is None:
        return False
    if is_operator(node, "LayerNormalization"):
        rank = len(node.outputs[0].shape or ())
        return int_attribute(node, "axis", -1) in (-1, rank - 1) and len(node.outputs) == 1
    return is_operator(node, "MatMul") and _is_matrix(node.inputs[1])


def _sizes(value: ir.Value | None) -> list[int] | None:
    """All sizes behind the first of a map of rows; None where one of them is not known."""
    sizes = known_sizes(value)
    return sizes if sizes is not None and len(sizes) >= LIST_RANK else None


def _is_matrix(value: ir.Value | None) -> bool:
    """Whether a value is constant, in codes or not, and has two axes."""
    maker = None if value is None else value.producer()
    source = maker.inputs[0] if maker is not None and is_operator(maker, "DequantizeLinear") else value
    array = constant_of(source)
    return array is not None and array.ndim == LIST_RANK - 1


def _is_row(value: ir.Value | None, reader: ir.Node) -> bool:
    """Whether an input is absent, or a constant that every row is computed with alike."""
    array = constant_of(value)
    if value is None or array is None:
        return value is None
    is_number = array.size == 1 and array.ndim <= LIST_RANK
    return is_number or (array.ndim <= 1 and not is_operator(reader, *CODING))


class _Lists:
    """Maps of rows [N, H, W, C] that are computed as lists [N, H W, C]."""

    def __init__(self, graph: ir.Model) -> None:
        self._graph = graph
        self._of: dict[ir.Value, ir.Value] = {}  # lists by map
        self._taken = all_names(graph)

    def begin(self, node: ir.Node) -> None:
        """Let a node compute a list, whatever makes what it reads."""
        first, *others = node.inputs
        assert first is not None
        self._compute(node, [self._list(first, node), *others])

    def carry(self, node: ir.Node) -> None:
        """Let a node compute a list where it reads one, and nothing else but rows and numbers."""
        if all(value in self._of or _is_row(value, node) for value in node.inputs):
            self._compute(
                node, [value if value is None else self._of.get(value, value) for value in node.inputs]
            )

    def _compute(self, node: ir.Node, inputs: list[ir.Value | None]) -> None:
        """Put a node of lists in the place of one of maps; who reads a map gets the list as one."""
        result, attributes = node.outputs[0], dict(node.attributes)
        if is_operator(node, "LayerNormalization"):
            attributes["axis"] = ir.AttrInt64("axis", -1)
        instead = ir.Node("", node.op_type, inputs, list(attributes.values()), num_outputs=1, name=node.name)
        made, sizes = instead.outputs[0], _sizes(result) or []
        made.name, made.type = take_name(f"{result.name}_map", self._taken), result.type
        shape = self._constant(result, [0, *sizes])
        back = ir.node("Reshape", [made, shape], name=take_name(f"{result.name}_unlisted", self._taken))
        take_place(self._graph, node, [instead, back], back.outputs[0])
        image = back.outputs[0]
        if not image.is_graph_output():  # reports look for what is computed, by its name
            name, image.name = image.name, None
            image.name, made.name = made.name, name
        self._of[image] = made

    def _list(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        if value not in self._of:
            sizes = _sizes(value) or []
            name = take_name(f"{value.name}_list", self._taken)
            node = ir.node("Reshape", [value, self._constant(value, [0, -1, sizes[-1]])], name=name)
            made = self._of[value] = node.outputs[0]
            made.name, made.type = name, value.type
            self._graph.graph.insert_before(reader, node)
        return self._of[value]

    def _constant(self, value: ir.Value, sizes: list[int]) -> ir.Value:
        return add_constant(self._graph, f"{value.name}_sizes", np.array(sizes, np.int64), self._taken)
