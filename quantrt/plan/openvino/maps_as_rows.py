# SPDX-License-Identifier: Apache-2.0
"""Parts of a graph that compute rows where they computed maps: a Reshape before them, another behind.

map -> layer -> activation -> ...
map -> Reshape -> layer -> activation -> ... -> Reshape
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, all_names, constant_of, is_operator, take_name, take_place

__all__ = ["POINTWISE", "MapsAsRows"]

CODING = ("DequantizeLinear", "QuantizeLinear")
POINTWISE = (
    *CODING,
    "Add",
    "Clip",
    "Div",
    "Elu",
    "Erf",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Mul",
    "Relu",
    "Sigmoid",
    "Sub",
    "Tanh",
)
"""Operators that compute rows as they compute maps, where all else that they read is alike for all rows."""


class MapsAsRows:
    """Maps of a graph that are computed as rows.

    Args:
        sizes: those of a map's rows and of the map, as Reshape takes them; None where they are not known.
        keeps_last: whether the last axis of rows is that of maps, so that constants along it are read alike.
    """

    def __init__(
        self,
        graph: ir.Model,
        sizes: Callable[[ir.Value], tuple[Sequence[int], Sequence[int]] | None],
        *,
        keeps_last: bool,
    ) -> None:
        self._sizes = sizes
        self._keeps_last = keeps_last
        self._of: dict[ir.Value, ir.Value] = {}  # rows by map
        self.graph = graph
        self.taken = all_names(graph)

    def rows(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        """Those of a map that a node reads."""
        if value not in self._of:
            node = self._reshape(value, value, self._known(value)[0], "rows")
            rows = self._of[value] = node.outputs[0]
            rows.name, rows.type = node.name, value.type
            self.graph.graph.insert_before(reader, node)
        return self._of[value]

    def carry(self, node: ir.Node) -> None:
        """Let a node compute rows where it reads some, and nothing else but what is alike for all of them."""
        if not is_operator(node, *POINTWISE) or self._sizes(node.outputs[0]) is None:
            return
        if all(value in self._of or self._is_alike(value, node) for value in node.inputs):
            inputs = [value if value is None else self._of.get(value, value) for value in node.inputs]
            self.compute(node, node.op_type, inputs, list(node.attributes.values()))

    def compute(
        self, node: ir.Node, op_type: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr]
    ) -> None:
        """Put an operator of rows in the place of one of maps; who reads a map gets one of the rows."""
        result = node.outputs[0]
        instead = ir.Node("", op_type, inputs, attributes, num_outputs=1, name=node.name)
        rows = instead.outputs[0]
        rows.name, rows.type = take_name(f"{result.name}_rows", self.taken), result.type
        back = self._reshape(rows, result, self._known(result)[1], "map")
        take_place(self.graph, node, [instead, back], back.outputs[0])
        image = back.outputs[0]
        if not image.is_graph_output():  # reports look for what is computed, by its name
            name, image.name = image.name, None
            image.name, rows.name = rows.name, name
        self._of[image] = rows

    def _is_alike(self, value: ir.Value | None, reader: ir.Node) -> bool:
        """Whether an input is absent, or a constant with which all rows are computed alike."""
        array = constant_of(value)
        if value is None or array is None:
            return value is None
        is_number = array.size == 1 and array.ndim <= len(self._known(reader.outputs[0])[0])
        return is_number or (self._keeps_last and array.ndim <= 1 and not is_operator(reader, *CODING))

    def _known(self, value: ir.Value) -> tuple[Sequence[int], Sequence[int]]:
        sizes = self._sizes(value)
        assert sizes is not None
        return sizes

    def _reshape(self, value: ir.Value, like: ir.Value, sizes: Sequence[int], to: str) -> ir.Node:
        """One to these sizes, named for one value of the graph."""
        shape = add_constant(self.graph, f"{like.name}_sizes", np.array(sizes, np.int64), self.taken)
        return ir.node("Reshape", [value, shape], name=take_name(f"{like.name}_{to}", self.taken))
