# SPDX-License-Identifier: Apache-2.0
"""Everything of a program that no tactic decides: its buffers, and the regions that have one way to run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.dtypes import INT8
from quantrt.ir.edit import constant_of
from quantrt.ir.split import to_bytes
from quantrt.model.binding import Binding
from quantrt.operators.extract import extract_nodes, read_values
from quantrt.plan.program import Place, Program, Step, codes_of
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.regions.expression import QUANTIZE, QUANTIZE_AT, Expression, Instruction, Operand
from quantrt.regions.formula_expression import expression_of
from quantrt.regions.region import (
    Conv,
    ConvTranspose,
    GroupNorm,
    Host,
    Nodes,
    Pool,
    Region,
    Regions,
    Resize,
    Rows,
    View,
)
from quantrt.tactics.cuda.forms.forms import CODES, FLOAT, Forms
from quantrt.tactics.cuda.forms.grids import CodeStep
from quantrt.tactics.cuda.forms.workloads import Lowered, lower_region
from quantrt.tactics.cuda.program.assemble import Item
from quantrt.tactics.cuda.tactic import TensorFacts, Workload

__all__ = ["Frame", "make_frame"]

LARGE_BYTES = 4096
"""Constants of nodes from this size on are weights of the program; smaller ones stay with their nodes."""

IMAGES = Conv | ConvTranspose | Pool | Resize | GroupNorm
"""Formulas over images, which lie in memory with their channels innermost."""

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


@dataclass(frozen=True)
class Frame:
    """A program without tactics.

    Attributes:
        program: inputs, outputs, nodes and their weights; no steps.
        items: every region on its buffers, in the order they run.
        places: of the buffers that are slices of larger images.
    """

    program: Program
    items: tuple[Item, ...]
    places: Mapping[str, Place] = field(default_factory=dict)

    def workloads(self, facts: Mapping[str, TensorFacts], live_rows: int | None = None) -> list[Workload]:
        """Every region with a formula at the shapes of the samples.

        Args:
            facts: of every buffer.
            live_rows: of regions without padding: tokens of the samples.
        """
        return [
            replace(
                item.lowered.workload(
                    [facts[buffer] for buffer in item.inputs],
                    [self.places[x].channels if x in self.places else 0 for x in item.outputs],
                ),
                live_rows=live_rows if item.live else None,
            )
            for item in self.items
            if item.lowered is not None
        ]


def make_frame(
    graph: ir.Model,
    regions: Regions,
    forms: Forms,
    quantized: QuantizedModel | None,
    float_type: str,
    *,
    bindings: Mapping[str, Binding] | None = None,
) -> Frame:
    """Lay the regions out on buffers, with conversions where a region cannot store what is read of it.

    Args:
        float_type: numpy's name of the type that floats are stored in.
        bindings: element types of inputs and outputs that are not the graph's own.
    """
    inputs = {value.name or "" for value in graph.graph.inputs}
    convolved = {region.inputs[0] for region in regions.regions if isinstance(region.formula, IMAGES)}
    maker = _Maker(graph, forms, quantized, float_type, images=inputs & convolved, bindings=bindings or {})
    items = [*maker.input_items()]
    for region in regions.regions:
        items += maker.items_of(region)
    plain = [region for region in regions.regions if isinstance(region.formula, Nodes | View | Host)]
    program = Program(
        inputs=tuple((value.name or "", maker.bound_type(value)) for value in maker.graph.inputs),
        outputs=tuple(maker.output(value) for value in maker.graph.outputs),
        steps=(),
        weights=maker.weights,
        kernels={},
        nodes=_nodes(graph, plain, maker.weights) if plain else b"",
    )
    return Frame(program, tuple(items))


class _Maker:
    """Items of regions; collects the constants that nodes read as weights.

    Args:
        images: inputs of the model that convolutions read: they are converted to channels innermost.
        bindings: element types of inputs and outputs that are not the graph's own.
    """

    def __init__(
        self,
        graph: ir.Model,
        forms: Forms,
        quantized: QuantizedModel | None,
        float_type: str,
        *,
        images: Collection[str],
        bindings: Mapping[str, Binding],
    ) -> None:
        self.graph = graph.graph
        self.bindings = bindings
        self.images = images
        self.forms = forms
        self.quantized = quantized
        self.float_type = float_type
        self.weights: dict[str, np.ndarray] = {}
        self.nodes = {node.name or "": node for node in self.graph}
        values = [*self.graph.inputs, *(value for node in self.graph for value in node.outputs)]
        self.values = {value.name or "": value for value in values}
        self.inputs = {value.name or "" for value in self.graph.inputs}

    def buffer(self, value: str, form: str) -> str:
        """The name of a value's buffer in one form."""
        if form == CODES:
            is_int8 = value in self.inputs and self.forms.code_type(value) == INT8.name
            arrives = is_int8 and self._step_of_input(value) == self.forms.grid(value)
            return value if arrives else codes_of(value, self.forms.code_type(value))
        wanted = self.forms.float_type(value, self.float_type)
        is_other = value in self.inputs and self.bound_type(self.values[value]) != wanted
        return f"{value}#{wanted}" if is_other and self._is_float(value) else value

    def bound_type(self, value: ir.Value) -> str:
        """Numpy's name of the type in which a caller passes an input or gets an output."""
        binding = self.bindings.get(value.name or "")
        return _type(value) if binding is None else binding.dtype

    def output(self, value: ir.Value) -> tuple[str, str, str]:
        """Name, buffer and type of an output."""
        name, binding = value.name or "", self.bindings.get(value.name or "")
        form = CODES if binding is not None and binding.scale is not None else FLOAT
        return name, self.buffer(name, form), self.bound_type(value)

    def _step_of_input(self, value: str) -> CodeStep | None:
        """Scale and zero point of an input that arrives as codes."""
        binding = self.bindings.get(value)
        scale = None if binding is None or value not in self.inputs else binding.scale
        return None if scale is None else (scale, 0)

    def input_items(self) -> Iterator[Item]:
        """Inputs of the model in the forms that are read."""
        for value in self.graph.inputs:
            name = value.name or ""
            if not self._is_float(name):
                continue
            for form in self.forms.stored.get(name, ()):
                if self.buffer(name, form) != name:
                    yield self._conversion(name, name, form, self._step_of_input(name))

    def items_of(self, region: Region) -> Iterator[Item]:
        """The region itself, then conversions of what it cannot store."""
        if expression_of(region.formula) is not None or not isinstance(region.formula, Nodes | View | Host):
            lowered = lower_region(region, self.graph, self.forms, self.quantized, self.float_type)
            inputs = tuple(self.buffer(value, form) for value, form in lowered.inputs)
            outputs = tuple(self.buffer(value, form) for value, form in lowered.outputs)
            yield Item(region.name, inputs, outputs, lowered)
            made = set(lowered.outputs)
        else:
            wanted = self._moved_forms(region)
            for form in wanted:
                yield self._plain(region, form)
            made = {(value, form) for value in region.outputs for form in wanted}
        for value in region.outputs:
            for form, other in ((CODES, FLOAT), (FLOAT, CODES)):
                if form in self.forms.stored.get(value, ()) and (value, form) not in made:
                    step = self.forms.grid(value) if other == CODES else None
                    yield self._conversion(value, self.buffer(value, other), form, step)

    def _moved_forms(self, region: Region) -> tuple[str, ...]:
        """The forms in which a region of nodes hands its values on."""
        source = self.forms.stored.get(region.inputs[0], (FLOAT,)) if region.inputs else (FLOAT,)
        wanted = [form for out in region.outputs for form in self.forms.stored.get(out, (FLOAT,))]
        moved = {FLOAT} if self.forms.moves_codes(region) else set()
        if moved and self._is_on_one_grid(region):
            moved.add(CODES)
        found = tuple(form for form in (FLOAT, CODES) if form in moved and form in source and form in wanted)
        return found or (FLOAT,)

    def _is_on_one_grid(self, region: Region) -> bool:
        """Whether codes of what a region moves are those of what that is moved to, where these are read."""
        coded = [value for value in region.outputs if CODES in self.forms.stored.get(value, ())]
        source = region.inputs[0] if region.inputs else ""
        if not coded or source not in self.forms.scales:
            return False
        kind = (self.forms.grid(source), self.forms.code_type(source))
        return all((self.forms.grid(value), self.forms.code_type(value)) == kind for value in coded)

    def _plain(self, region: Region, form: str) -> Item:
        """A region of nodes; all of its outputs, and the first of its inputs, are in `form`."""
        is_host = isinstance(region.formula, Host)
        inputs = tuple(self._read(value, form, number) for number, value in enumerate(region.inputs))
        outputs = tuple(self.buffer(value, form) for value in region.outputs)
        constants = tuple(self._constants(region))
        options: dict[str, Any] = {
            "nodes": list(region.nodes),
            "values": list(region.inputs),
            "results": list(region.outputs),
        }
        if constants:
            options["constants"] = [name for name, _ in constants]
        if isinstance(region.formula, Nodes):
            options |= {"compute": "float32", "outputs": [self._stored(x, form) for x in region.outputs]}
        step = Step(
            runner={Host: "host", View: "view", Nodes: "nodes"}[type(region.formula)],
            region=region.name,
            inputs=inputs,
            outputs=outputs,
            options=options,
            weights=tuple(key for _, key in constants),
            is_host=is_host,
            reads_values=isinstance(region.formula, Nodes) and region.formula.reads_values,
        )
        return Item(region.name, inputs, outputs, step=step)

    def _read(self, value: str, form: str, number: int) -> str:
        stored = self.forms.stored.get(value) or (FLOAT,)
        wanted = form if number == 0 and form in stored else stored[0]
        return self.buffer(value, wanted)

    def _stored(self, value: str, form: str) -> str:
        if form == CODES:
            return self.forms.code_type(value)
        is_float = self._is_float(value)
        return self.forms.float_type(value, self.float_type) if is_float else _type(self.values[value])

    def _constants(self, region: Region) -> Iterator[tuple[str, str]]:
        """Large constants of a region's nodes: name and key; floats in the type that floats are stored in."""
        for name in dict.fromkeys(
            value.name or "" for node in region.nodes for value in read_values(self.nodes[node])
        ):
            value = self.graph.initializers.get(name)
            array = constant_of(value)
            if value is None or array is None or array.nbytes < LARGE_BYTES:
                continue
            is_float = value.const_value is not None and value.const_value.dtype in _FLOATS
            key = f"{name}|{self.float_type if is_float else array.dtype}"
            self.weights.setdefault(key, array.astype(self.float_type) if is_float else array)
            yield name, key

    def _conversion(self, value: str, source: str, form: str, step: CodeStep | None = None) -> Item:
        """A region that makes another form of a value.

        Args:
            step: scale and zero point of the codes that it is made from.
        """
        dtype = self.forms.code_type(value)
        wanted: list[tuple[str, tuple[float, ...]]] = []
        if step is not None:
            wanted = [*([("sub", (float(step[1]),))] if step[1] else []), ("mul", (step[0],))]
        if form == CODES and value in self.forms.scales:
            scale, zero_point = self.forms.grid(value)
            wanted += [(QUANTIZE_AT, (scale, zero_point)) if zero_point else (QUANTIZE[dtype], (scale,))]
        expression = _chain(value, wanted)
        stored = self.forms.float_type(value, self.float_type) if form == FLOAT else dtype
        target = self.buffer(value, form)
        formula = Rows(expression, channels_last=value in self.images)
        region = Region(f"convert {target}", formula, (), (value,), (value,))
        lowered = Lowered(region, formula, ((value, FLOAT),), ((value, form),), (stored,))
        return Item(region.name, (source,), (target,), lowered)

    def _is_float(self, value: str) -> bool:
        found = self.values.get(value)
        return found is None or found.dtype is None or found.dtype in _FLOATS


def _chain(value: str, steps: Sequence[tuple[str, tuple[float, ...]]]) -> Expression:
    """A tensor through operations, each with numbers behind what the one before it made."""
    numbers = [number for _, given in steps for number in given]
    operands = (Operand("tensor", value), *(Operand("scalar", value=number) for number in numbers))
    result, taken = 0, 1
    instructions = []
    for count, (op, given) in enumerate(steps):
        instructions.append(Instruction(op, (result, *range(taken, taken + len(given)))))
        result, taken = len(operands) + count, taken + len(given)
    return Expression(operands, tuple(instructions), (result,), (False,))


def _nodes(graph: ir.Model, regions: Sequence[Region], weights: Mapping[str, np.ndarray]) -> bytes:
    """The nodes of these regions as a protobuf, without the constants that are weights."""
    names = {node for region in regions for node in region.nodes}
    nodes = [node for node in graph.graph if (node.name or "") in names]
    made = {value.name for node in nodes for value in node.outputs}
    large = {key.rpartition("|")[0] for key in weights}
    read = dict.fromkeys(value.name or "" for node in nodes for value in read_values(node))
    inputs = [
        name for name in read if name not in made and (name in large or name not in graph.graph.initializers)
    ]
    return to_bytes(extract_nodes(graph, sorted(names), inputs, ()))


def _type(value: ir.Value) -> str:
    """Numpy's name of a value's element type."""
    if value.dtype is None:
        return "float32"
    return str(value.dtype.numpy())
