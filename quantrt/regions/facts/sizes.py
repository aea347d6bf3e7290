# SPDX-License-Identifier: Apache-2.0
"""Which tensors are known to have the same shape, whatever the model's inputs are.

ONNX's inference gives every size that it cannot tell a symbol of its own. Here symbols that must be equal
become one: by following the elements of computed shapes, by what operators demand of their inputs, and
because nodes that do the same to tensors of the same shape make tensors of the same shape.
"""

from __future__ import annotations

import itertools

import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.regions.facts.contents import Dim, constant_elements, elements_of
from quantrt.regions.facts.parameters import VALUE_READERS, parameters_of
from quantrt.regions.facts.shape_rules import SAME_AS_FIRST, Shape, shape_after

__all__ = ["Sizes"]

_MAX_ELEMENTS = 64  # of a constant that may decide a shape


class Sizes:
    """Shapes of all values of a graph's main part, their equal symbols made one."""

    def __init__(self, graph: ir.Model) -> None:
        self._same: dict[Dim, Dim] = {}
        self._shapes: dict[str, Shape] = {}
        self._elements: dict[str, tuple[Dim, ...]] = {}
        self._twin: dict[str, str] = {}
        self._seen: dict[object, list[Shape | None]] = {}
        values = [*graph.graph.inputs, *graph.graph.initializers.values()]
        for value in values:
            self._note(value, _declared(value))
            elements = constant_elements(value) if value.is_initializer() else None
            if elements is not None and not value.is_graph_input():
                self._elements[value.name or ""] = elements
        for node in graph.graph:
            self._visit(node)

    def shape(self, value: ir.Value | None) -> Shape | None:
        """The sizes of a value: numbers and symbols; None when even the rank is unknown."""
        known = self._shapes.get(value.name or "") if value is not None else None
        return None if known is None else tuple(self._find(dim) for dim in known)

    def same(self, one: ir.Value | None, other: ir.Value | None) -> bool:
        """Whether two values are known to have the same shape."""
        if one is None or other is None:
            return False
        if self._root(one.name or "") == self._root(other.name or ""):
            return True
        shape = self.shape(one)
        return shape is not None and shape == self.shape(other)

    def elements(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """The elements of a small integer tensor: numbers and symbols; None where they are not known."""
        known = self._elements.get(value.name or "") if value is not None else None
        return None if known is None else tuple(self._find(dim) for dim in known)

    def _visit(self, node: ir.Node) -> None:
        is_standard = node.domain in ("", "ai.onnx")
        if is_standard:
            self._unify_inputs(node)
        ruled = self._rule(node) if is_standard else None
        alike = self._alike(node) if ruled is None else [ruled]
        for place, value in enumerate(node.outputs):
            self._note(value, _declared(value))
            if place < len(alike):
                self._note(value, alike[place])
        if is_standard and node.op_type in SAME_AS_FIRST and node.inputs and node.inputs[0] is not None:
            self._twin[node.outputs[0].name or ""] = node.inputs[0].name or ""
        if is_standard and len(node.outputs) == 1:
            self._follow(node)

    def _follow(self, node: ir.Node) -> None:
        parts = [None if value is None else self._elements.get(value.name or "") for value in node.inputs]
        first = self.shape(node.inputs[0]) if node.inputs else None
        elements = elements_of(node, parts, first)
        if elements is not None:
            self._elements[node.outputs[0].name or ""] = tuple(self._find(dim) for dim in elements)

    def _note(self, value: ir.Value, shape: Shape | None) -> None:
        """Take in a shape; where one is known already, both are right, and their symbols equal."""
        if shape is None or not value.name:
            return
        known = self._shapes.get(value.name)
        if known is None:
            self._shapes[value.name] = shape
        elif len(known) == len(shape):
            for one, other in zip(known, shape, strict=True):
                self._unify(one, other)

    def _unify_inputs(self, node: ir.Node) -> None:
        shapes = [self.shape(value) for value in node.inputs]
        if is_operator(node, "Concat") and all(shape is not None for shape in shapes):
            axis = int_attribute(node, "axis", 0)
            for one, other in itertools.pairwise(shape for shape in shapes if shape is not None):
                if len(one) == len(other):
                    for place in {*range(len(one))} - {axis % len(one)}:
                        self._unify(one[place], other[place])
        if is_operator(node, "MatMul") and shapes[0] and shapes[1] and len(shapes[1]) > 1:
            self._unify(shapes[0][-1], shapes[1][-2])

    def _rule(self, node: ir.Node) -> Shape | None:
        parts = [self._elements.get(value.name or "") if value is not None else None for value in node.inputs]
        known = [None if part is None else tuple(self._find(dim) for dim in part) for part in parts]
        return shape_after(node, [self.shape(value) for value in node.inputs], known)

    def _alike(self, node: ir.Node) -> list[Shape | None]:
        """The shapes that an equal node made of tensors of equal shapes."""
        has_body = any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values())
        if has_body or node.op_type in VALUE_READERS:
            return []
        parameters = parameters_of(node)
        known: list[object] = []
        for value in node.inputs:
            shape, elements = self.shape(value), self._content(value)
            if value is not None and (shape is None or (value in parameters and elements is None)):
                return []
            known.append((shape, elements))
        attributes = sorted((name, repr(item.value)) for name, item in node.attributes.items())
        key = repr((node.domain, node.op_type, attributes, known, len(node.outputs)))
        if key not in self._seen:
            self._seen[key] = [_declared(value) for value in node.outputs]
        return self._seen[key]

    def _content(self, value: ir.Value | None) -> object:
        """The elements of a value where they are few and known."""
        if value is None:
            return None
        if (
            value.is_initializer()
            and not value.is_graph_input()
            and value.const_value is not None
            and value.const_value.size <= _MAX_ELEMENTS
        ):
            array = constant_of(value)
            return None if array is None else (array.dtype.name, array.tobytes())
        return self._elements.get(value.name or "")

    def _unify(self, one: Dim, other: Dim) -> None:
        one, other = self._find(one), self._find(other)
        if one == other or (isinstance(one, int) and isinstance(other, int)):
            return
        kept, dropped = (one, other) if _meaning(one) >= _meaning(other) else (other, one)
        self._same[dropped] = kept

    def _find(self, dim: Dim) -> Dim:
        while dim in self._same:
            dim = self._same[dim]
        return dim

    def _root(self, name: str) -> str:
        while name in self._twin:
            name = self._twin[name]
        return name


def _declared(value: ir.Value) -> Shape | None:
    """What inference found; a size without a symbol gets the value's name and axis."""
    if value.shape is None:
        return None
    return tuple(
        dim if isinstance(dim, int) else dim.value or f"{value.name}.{axis}"
        for axis, dim in enumerate(value.shape.dims)
    )


def _meaning(dim: Dim) -> int:
    """How much a size says: a number, a symbol of the model, one made of such, one that says nothing."""
    if isinstance(dim, int):
        return 3
    if dim.startswith("unk__") or "." in dim:
        return 0
    return 1 if "*" in dim or "[" in dim else 2
