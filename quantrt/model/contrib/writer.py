# SPDX-License-Identifier: Apache-2.0
"""Writes standard nodes in the place of one node of ONNX Runtime's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, float_attribute, int_attribute
from quantrt.ir.sources import SOURCES_KEY, sources_of
from quantrt.ir.value_shape import infer_value

__all__ = ["Dim", "NoSpellingError", "Writer"]

Array = np.ndarray[Any, Any]

Dim = int | str | None
"""A size, its symbol, or None where nothing is known of it."""


class NoSpellingError(Exception):
    """A node whose form cannot be written in standard operators; the text says what it has."""


class Writer:
    """The new nodes of one node. The graph reads them from `put` on; before, `forget` takes all back.

    Args:
        taken: names that are in use; those of new constants and values are added.
        refresh: infers all shapes anew, where nodes have been put since.
    """

    def __init__(
        self, graph: ir.Model, node: ir.Node, taken: set[str], refresh: Callable[[], None] = lambda: None
    ) -> None:
        self.graph = graph
        self.node = node
        self._taken = taken
        self._refresh = refresh
        self._made: list[ir.Node] = []
        self._constants: list[ir.Value] = []

    # ---- what the node has

    def input(self, index: int) -> ir.Value | None:
        """An input; None where it is absent."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def need(self, index: int, name: str) -> ir.Value:
        """An input that the operator cannot do without."""
        value = self.input(index)
        if value is None:
            raise NoSpellingError(f"it has no {name}")
        return value

    def refuse(self, index: int, name: str) -> None:
        """An input that has no spelling."""
        if self.input(index) is not None:
            raise NoSpellingError(f"it has the input {name}")

    def int_of(self, name: str, default: int = 0) -> int:
        """An attribute."""
        return int_attribute(self.node, name, default)

    def float_of(self, name: str, default: float) -> float:
        """An attribute."""
        return float_attribute(self.node, name, default)

    def copied(self, *names: str) -> dict[str, Any]:
        """Those of the attributes that the node has."""
        return {name: self.node.attributes[name] for name in names if name in self.node.attributes}

    def is_used(self, index: int) -> bool:
        """Whether an output is read, or is one of the model's."""
        if index >= len(self.node.outputs):
            return False
        value = self.node.outputs[index]
        return bool(value.name) and (bool(value.uses()) or value.is_graph_output())

    def shape(self, value: ir.Value) -> tuple[Dim, ...] | None:
        """Sizes of a value as far as they are known; None where not even their number is."""
        if value.shape is None:
            infer_value(self.graph, value)
        if value.shape is None:
            self._refresh()
        shape = value.shape
        return None if shape is None else tuple(d if isinstance(d, int) else d.value for d in shape)

    def rank(self, value: ir.Value) -> int:
        """The number of a value's axes."""
        shape = self.shape(value)
        if shape is None:
            raise NoSpellingError(f"the rank of '{value.name}' is not known")
        return len(shape)

    # ---- what is made

    def op(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """The one output of a new node."""
        return self.ops(op_type, *inputs, outputs=1, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: ir.Value | None, outputs: int, **attributes: Any
    ) -> tuple[ir.Value, ...]:
        """The outputs of a new node, which is called after the node it stands for."""
        name = self._free(f"{self.node.name}_{op_type}")
        node = ir.node(op_type, list(inputs), attributes=attributes, num_outputs=outputs, name=name)
        for number, value in enumerate(node.outputs):
            value.name = name if not number else self._free(f"{name}_{number}")
        node.metadata_props[SOURCES_KEY] = "\n".join(sources_of(self.node))
        self._made.append(node)
        return tuple(node.outputs)

    def constant(self, array: Array, what: str) -> ir.Value:
        """A new initializer, called after the node and what it is."""
        value = add_constant(self.graph, f"{self.node.name}_{what}", array, self._taken)
        self._constants.append(value)
        return value

    def number(self, number: float, what: str) -> ir.Value:
        """A float32."""
        return self.constant(np.asarray(number, np.float32), what)

    def integers(self, *numbers: int) -> ir.Value:
        """A vector, as shapes and axes are."""
        return self.constant(np.array(numbers, np.int64), "_".join(map(str, numbers)))

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """The size of one axis, counted from 0, as a vector of one."""
        return self.op("Gather", self.op("Shape", value), self.integers(axis), axis=0)

    def reshaped(self, value: ir.Value, *sizes: int) -> ir.Value:
        """A Reshape to numbers; 0 is the size as it is, -1 what is left."""
        return self.op("Reshape", value, self.integers(*sizes))

    def unsqueezed(self, value: ir.Value, *axes: int) -> ir.Value:
        """With axes of size 1 at these places of the result."""
        return self.op("Unsqueeze", value, self.integers(*axes))

    def split(self, value: ir.Value, axis: int, *sizes: int) -> tuple[ir.Value, ...]:
        """Parts of these sizes."""
        return self.ops("Split", value, self.integers(*sizes), outputs=len(sizes), axis=axis)

    def _free(self, name: str) -> str:
        unique, number = name, 0
        while unique in self._taken:
            number += 1
            unique = f"{name}_{number}"
        self._taken.add(unique)
        return unique

    # ---- the end

    def put(self, results: Mapping[int, ir.Value]) -> None:
        """Put what was made in the place of the node.

        Args:
            results: by index of the node's output: what takes over its name, type, shape and readers.
        """
        wanted = {index: self._own(value, index, results) for index, value in results.items()}
        part = self.node.graph
        assert part is not None, "a node that was taken out has no place"
        part.insert_before(self.node, self._made)
        for index, made in wanted.items():
            old = self.node.outputs[index]
            name, made.shape, made.type = old.name, old.shape, old.type
            old.replace_all_uses_with(made, replace_graph_outputs=True)
            old.name, made.name = None, name
        part.remove(self.node, safe=True)

    def _own(self, value: ir.Value, index: int, results: Mapping[int, ir.Value]) -> ir.Value:
        """A value made here that no earlier output has taken."""
        is_new = value.producer() in self._made
        is_first = not any(other < index and results[other] is value for other in results)
        return value if is_new and is_first else self.op("Identity", value)

    def forget(self) -> None:
        """Take back what was begun."""
        for node in self._made:
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        for value in self._constants:
            del self.graph.graph.initializers[value.name or ""]
            self._taken.discard(value.name or "")
