# SPDX-License-Identifier: Apache-2.0
"""A fake-quantized graph in which every layer is quantized or float, as an input of the graph says.

    x, w of a layer   ->   Where(flags[layer], DequantizeLinear(QuantizeLinear(x)), x), and the same for w
    rows of a table   ->   Where(flags[layer], Gather(DequantizeLinear(codes), i), Gather(table, i))

All flags off is the float model, all on the fake-quantized one, one on is one layer quantized alone. A layer
is a node that reads something rounded; what moves values only (Reshape, Transpose, ...) is no layer: whoever
reads what it moved is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.errors import ModelError
from quantrt.ir.clone import clone
from quantrt.ir.edit import add_constant, constant_of, is_operator

__all__ = ["FLAGS", "MOVES", "OUTPUT", "SUFFIX", "Layer", "Switched", "copy_node", "switch_layers"]

FLAGS = "quantrt.layers"
"""The input that says which layers are quantized: bool [layers]."""

MOVES = (
    "MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat",
    "Gather", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Identity",
)  # fmt: skip
"""Operators whose results are values of their inputs."""

SUFFIX = "/quantrt."
"""Between the name of a value and what another form of it is called."""

ROUNDING = 1e-6
"""Relative: a few units in the last place of float32."""

OUTPUT = "(output)"
"""The operator of a layer that is nothing but the rounding of a model output."""


@dataclass(frozen=True)
class Layer:
    """A node that reads rounded values.

    Attributes:
        name, op_type: of the node; of what only rounds an output, that output and OUTPUT.
        index: its place in the flags.
        reads: what it reads rounded: values and weights, by name. A node that reads something that was made
            in codes has a layer of its own for each such value, with nothing else in it.
        is_made: whether that is what it reads: who makes it rounds it too.
    """

    name: str
    op_type: str
    index: int
    reads: tuple[str, ...]
    is_made: bool = False


@dataclass(frozen=True)
class Switched:
    """The graph with switches.

    Attributes:
        graph: its inputs are the model's and FLAGS.
        layers: in topological order.
        quantized: for each edge (node, index) of a layer or its bias, the quantized form of what it reads.
    """

    graph: ir.Model
    layers: tuple[Layer, ...]
    quantized: dict[tuple[str, int], ir.Value]

    def flags(self, *on: int) -> np.ndarray:
        """The flags with some layers on."""
        made = np.zeros(len(self.layers), np.bool_)
        made[list(on)] = True
        return made


def switch_layers(fake: ir.Model, floats: ir.Model, made: Collection[str] = ()) -> Switched:
    """Put switches into a fake-quantized graph.

    Args:
        floats: the float graph it was made of; nodes are matched by name, or by what they make.
        made: names of values that kernels make in codes.

    Raises:
        ModelError: nothing is quantized, or the float form of a constant is not in `floats`.
    """
    switcher = _Switcher(fake, floats, made)
    for node in switcher.nodes:
        switcher.take(node)
    switcher.take_outputs()
    if not switcher.layers:
        raise ModelError("no layer of the model is quantized")
    return switcher.finish()


def copy_node(node: ir.Node, inputs: Sequence[ir.Value | None], suffix: str) -> ir.Node:
    """The same operator on other inputs; it and its outputs are called as before, with `suffix` behind."""
    copy = ir.Node(
        node.domain, node.op_type, inputs, list(node.attributes.values()), num_outputs=len(node.outputs)
    )
    copy.name = f"{node.name}{suffix}"
    for old, new in zip(node.outputs, copy.outputs, strict=True):
        new.name = f"{old.name}{suffix}" if old.name else None
        new.shape, new.type = old.shape, old.type
    return copy


class _Switcher:
    """Works through the nodes of one clone, in topological order."""

    def __init__(self, fake: ir.Model, floats: ir.Model, made: Collection[str]) -> None:
        self.model = clone(fake)
        self._made = frozenset(made)
        self.graph = self.model.graph
        self.nodes = [node for node in self.graph if not is_operator(node, "QuantizeLinear")]
        self.layers: list[Layer] = []
        self.quantized: dict[tuple[str, int], ir.Value] = {}
        self._by_name = {node.name: node for node in floats.graph}
        self._by_output = {node.outputs[0].name: node for node in floats.graph if node.outputs}
        self._moved: dict[ir.Value, ir.Value] = {}
        self._again: dict[ir.Value, ir.Value] = {}
        self._owner: dict[ir.Value, Layer] = {}
        self._conditions: dict[int, ir.Value] = {}
        self._constants: dict[int, ir.Value] = {}
        self._flags = ir.Value(name=FLAGS, type=ir.TensorType(ir.DataType.BOOL))

    def take(self, node: ir.Node) -> None:
        """Let a node read floats; and rounded values too, behind switches, when it is a layer."""
        if is_operator(node, "DequantizeLinear"):
            return
        forms = dict(self._forms(node))
        if not forms:
            return
        if is_operator(node, *MOVES) and not any(_is_constant(x) for x in forms.values()):
            self._move(node, forms)
            return
        own = {index: form for index, form in forms.items() if _name(form[1]) not in self._made}
        layer = self._layer(node, own) if own else None
        for index, (quantized, floating) in forms.items():
            self.quantized[(node.name or "", index)] = quantized
            if index not in own:
                reader = self._add_layer(node.name or "", node.op_type, (_name(floating),), is_made=True)
                node.replace_input_with(index, self._switch(reader, quantized, floating))
                continue
            assert layer is not None  # of the others
            if is_operator(node, "Gather") and index == 0:
                self._switch_rows(layer, node, quantized, floating)
            else:
                node.replace_input_with(index, self._switch(layer, quantized, floating))
        for value in node.outputs:
            self._owner[value] = layer or self.layers[-1]

    def take_outputs(self) -> None:
        """Switches before outputs of the model that are rounded."""
        for position, output in enumerate(self.graph.outputs):
            source = self._source(output)
            floating = source if source is not None else output
            quantized = output if source is not None else self._moved.get(output)
            if quantized is None:
                continue
            name = output.name or ""
            output.name = f"{name}{SUFFIX}output"
            layer = self._add_layer(name, OUTPUT, (name,))
            self.quantized[(name, 0)] = quantized
            result = self._switch(layer, quantized, floating)
            result.name = name
            self.graph.outputs[position] = result

    def finish(self) -> Switched:
        """The finished graph, sorted."""
        self._flags.shape = ir.Shape([len(self.layers)])
        self.graph.inputs.append(self._flags)
        self.graph.sort()
        return Switched(self.model, tuple(self.layers), self.quantized)

    def _forms(self, node: ir.Node) -> Iterator[tuple[int, tuple[ir.Value, ir.Value]]]:
        """For each input that has two forms: (index, (quantized, float))."""
        for index, value in enumerate(node.inputs):
            if value is None:
                continue
            source = self._source(value)
            if source is not None and constant_of(source) is None:
                yield index, (self._rounded_again(value, source), source)
            elif source is not None or _is_dequantized_constant(value):
                yield index, (value, self._float_constant(node, index, value))
            elif value in self._moved:
                yield index, (self._moved[value], value)
            elif constant_of(value) is not None:
                changed = self._changed_constant(node, index, value)
                if changed is not None:
                    yield index, (value, changed)

    def _rounded_again(self, value: ir.Value, source: ir.Value) -> ir.Value:
        """`value`, of the rounded form of what it rounds: values that were moved may be on another grid."""
        if source not in self._moved:
            return value
        if value not in self._again:
            last = value.producer()
            first = last.inputs[0].producer() if last is not None and last.inputs[0] is not None else None
            made = self._moved[source]
            for node in (first, last):
                if node is not None:
                    copy = copy_node(node, (made, *node.inputs[1:]), f"{SUFFIX}again")
                    self.graph.append(copy)
                    made = copy.outputs[0]
            self._again[value] = made
        return self._again[value]

    def _source(self, value: ir.Value) -> ir.Value | None:
        """What a QuantizeLinear -> DequantizeLinear rounds to make `value`; None for another value."""
        last = value.producer()
        codes = last.inputs[0] if last is not None and is_operator(last, "DequantizeLinear") else None
        first = codes.producer() if codes is not None else None
        return first.inputs[0] if first is not None and is_operator(first, "QuantizeLinear") else None

    def _move(self, node: ir.Node, forms: dict[int, tuple[ir.Value, ir.Value]]) -> None:
        """Move floats and, beside them, rounded values."""
        inputs = [forms[index][0] if index in forms else value for index, value in enumerate(node.inputs)]
        copy = copy_node(node, inputs, f"{SUFFIX}moved")
        self.graph.insert_after(node, copy)
        self._moved.update(zip(node.outputs, copy.outputs, strict=True))
        for index, (_, floating) in forms.items():
            node.replace_input_with(index, floating)

    def _layer(self, node: ir.Node, forms: dict[int, tuple[ir.Value, ir.Value]]) -> Layer:
        """A new layer; a bias that was only changed belongs to the layer that it is added to."""
        if all(constant_of(quantized) is not None for quantized, _ in forms.values()):
            for value in node.inputs:
                if value in self._owner:
                    return self._owner[value]
        reads = tuple(_name(floating) for _, floating in forms.values())
        return self._add_layer(node.name or "", node.op_type, reads)

    def _add_layer(self, name: str, op_type: str, reads: tuple[str, ...], *, is_made: bool = False) -> Layer:
        layer = Layer(name, op_type, len(self.layers), reads, is_made)
        self.layers.append(layer)
        return layer

    def _switch(self, layer: Layer, quantized: ir.Value, floating: ir.Value) -> ir.Value:
        if layer.index not in self._conditions:
            position = add_constant(self.model, "quantrt.position", np.asarray(layer.index, np.int64))
            self._conditions[layer.index] = self._add("Gather", self._flags, position)
        result = self._add("Where", self._conditions[layer.index], quantized, floating)
        result.shape, result.type = floating.shape, floating.type
        return result

    def _switch_rows(self, layer: Layer, node: ir.Node, quantized: ir.Value, floating: ir.Value) -> None:
        """Switch behind a Gather: the rows that it picks are few, and the table is large."""
        rows = node.outputs[0]
        coded = copy_node(node, [quantized, *node.inputs[1:]], f"{SUFFIX}coded")
        self.graph.insert_after(node, coded)
        node.replace_input_with(0, floating)
        readers = tuple(rows.uses())
        result = self._switch(layer, coded.outputs[0], rows)
        for reader, index in readers:
            reader.replace_input_with(index, result)
        if rows.is_graph_output():
            name = rows.name
            rows.name, result.name = f"{name}{SUFFIX}float", name
            for position, output in enumerate(self.graph.outputs):
                if output is rows:
                    self.graph.outputs[position] = result
        self._owner[result] = layer

    def _add(self, op_type: str, *inputs: ir.Value) -> ir.Value:
        node = ir.node(op_type, list(inputs))
        node.name = f"quantrt.{op_type}_{len(self.graph)}"
        node.outputs[0].name = f"{node.name}_output"
        self.graph.append(node)
        return node.outputs[0]

    def _float_constant(self, node: ir.Node, index: int, value: ir.Value) -> ir.Value:
        """The constant that was quantized at this edge; zeros for a bias that the float model has not."""
        twin = self._twin(node)
        tensor = twin.inputs[index] if twin is not None and len(twin.inputs) > index else None
        array = constant_of(tensor)
        if array is not None and tensor is not None:
            return self._constant(tensor, array)
        is_new = twin is not None and len(twin.inputs) <= index
        if is_new and value.shape is not None and value.shape.is_static():
            return add_constant(
                self.model, f"{value.name}{SUFFIX}float", np.zeros(value.shape.numpy(), np.float32)
            )
        raise ModelError(
            f"the float model has no constant for input {index} of '{node.name}'",
            hint="the float model that it was quantized from as A",
        )

    def _changed_constant(self, node: ir.Node, index: int, value: ir.Value) -> ir.Value | None:
        """The float model's constant where it is another one than the quantized model's."""
        twin = self._twin(node)
        mine = constant_of(value)
        if twin is None or mine is None or mine.dtype.kind != "f":
            return None
        if len(twin.inputs) <= index:
            return add_constant(self.model, f"{value.name}{SUFFIX}float", np.zeros_like(mine))
        tensor = twin.inputs[index]
        theirs = constant_of(tensor)
        if tensor is None or theirs is None or theirs.shape != mine.shape or theirs.dtype != mine.dtype:
            return None
        return None if _are_equal(mine, theirs) else self._constant(tensor, theirs)

    def _twin(self, node: ir.Node) -> ir.Node | None:
        """The node of the float model."""
        found = self._by_name.get(node.name)
        if found is None or found.op_type != node.op_type:
            found = self._by_output.get(node.outputs[0].name)
        return found if found is not None and found.op_type == node.op_type else None

    def _constant(self, value: ir.Value, array: np.ndarray) -> ir.Value:
        key = id(value)
        if key not in self._constants:
            self._constants[key] = add_constant(self.model, f"{value.name}{SUFFIX}float", array)
        return self._constants[key]


def _name(value: ir.Value) -> str:
    """Of the model's own value, which another form of it is called after."""
    return (value.name or "").partition(SUFFIX)[0]


def _is_dequantized_constant(value: ir.Value) -> bool:
    maker = value.producer()
    return (
        is_operator(maker, "DequantizeLinear") and maker is not None and _is_constant_value(maker.inputs[0])
    )


def _is_constant(forms: tuple[ir.Value, ir.Value]) -> bool:
    return constant_of(forms[0]) is not None or _is_dequantized_constant(forms[0])


def _is_constant_value(value: ir.Value | None) -> bool:
    return constant_of(value) is not None


def _are_equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Up to roundings in float32, which factors that were fitted leave."""
    return a is b or np.allclose(a, b, rtol=ROUNDING, atol=0.0, equal_nan=True)
