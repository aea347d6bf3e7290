# SPDX-License-Identifier: Apache-2.0
"""In which forms every value exists: as floats, as codes, or as both; decided by who reads it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from quantrt.dtypes import INT8
from quantrt.model.binding import Binding
from quantrt.quantize.operands import rule_of
from quantrt.quantize.quantized_model import QuantizedModel, Use
from quantrt.regions.expression import Expression
from quantrt.regions.region import (
    Attention,
    Concat,
    Conv,
    ConvTranspose,
    Gemm,
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

__all__ = ["CODES", "FLOAT", "Forms", "CodeStep", "Slot", "choose_forms", "expression_of", "slots_of"]

FLOAT = "float"
CODES = "codes"

CodeStep = tuple[float, int]
"""Scale and zero point: x = (code - zero point) * scale."""


@dataclass(frozen=True)
class Slot:
    """One tensor that a formula reads.

    Attributes:
        value: its name.
        use: the edge that reads it; None where a region reads it as a whole.
    """

    value: str
    use: Use | None = None


@dataclass(frozen=True)
class Forms:
    """Which forms are read and stored.

    Attributes:
        scales: of every value that can exist as codes.
        zero_points: of those of them whose code of 0 is another than 0.
        reads: for every region, value and form of each of its slots.
        stored: for every value, the forms that its maker stores, FLOAT first.
        bools: values that are truths.
        movers: names of nodes besides views that hand on whatever form their input has.
        types: element types of codes, of values whose codes are not int8.
        wide: values whose floats are float32, whatever those of the others are.
        constraints: element types of values whose makers store them in that type alone; other forms of them
            are converted.
    """

    scales: Mapping[str, float]
    reads: Mapping[str, tuple[tuple[str, str], ...]]
    stored: Mapping[str, tuple[str, ...]]
    bools: frozenset[str]
    movers: frozenset[str]
    types: Mapping[str, str] = field(default_factory=dict)
    wide: frozenset[str] = frozenset()
    constraints: Mapping[str, str] = field(default_factory=dict)
    zero_points: Mapping[str, int] = field(default_factory=dict)

    def grid(self, value: str) -> CodeStep:
        """Scale and zero point of a value that can exist as codes."""
        return self.scales[value], self.zero_points.get(value, 0)

    def code_type(self, value: str) -> str:
        """Numpy's name of the type of a value's codes."""
        return self.types.get(value, INT8.name)

    def has_codes_alone(self, value: str) -> bool:
        """Whether a constraint says that a value is stored as codes."""
        return self.constraints.get(value) == INT8.name

    def float_type(self, value: str, usual: str) -> str:
        """Numpy's name of the type of a value's floats."""
        usual = "float32" if value in self.wide else usual
        return usual if self.has_codes_alone(value) else self.constraints.get(value, usual)

    def moves_codes(self, region: Region) -> bool:
        """Whether a region hands on whatever form its input has."""
        return _moves_codes(region, self.movers)


def expression_of(region: Region) -> Expression | None:
    """The expression that a region's outputs come from; None for formulas without one."""
    match region.formula:
        case (
            Gemm(epilogue=expression)
            | Conv(epilogue=expression)
            | ConvTranspose(epilogue=expression)
            | Pool(epilogue=expression)
            | Resize(epilogue=expression)
            | GroupNorm(epilogue=expression)
            | Rows(expression)
        ):
            return expression
        case _:
            return None


def slots_of(region: Region, nodes: Mapping[str, ir.Node]) -> tuple[Slot, ...]:
    """What a region's formula reads, in its order; a value that is read twice is there twice.

    Args:
        nodes: of the graph, by name.
    """
    return tuple(_slots(region, nodes))


def choose_forms(
    graph: ir.Graph,
    regions: Regions,
    quantized: QuantizedModel | None,
    bindings: Mapping[str, Binding] | None = None,
    constraints: Mapping[str, Binding] | None = None,
) -> Forms:
    """Let every region say what it reads, from the last to the first.

    Args:
        bindings: element types of inputs and outputs that are not the graph's own.
        constraints: types that values have to be stored in.
    """
    constraints = constraints or {}
    codes = _scales_of_codes(graph, bindings or {})
    leaving = codes | {name: x.scale for name, x in constraints.items() if x.scale is not None}
    grids = _Grids(graph, quantized, leaving)
    nodes = {node.name or "": node for node in graph}
    needed: dict[str, set[str]] = {
        value.name or "": {CODES if (value.name or "") in codes else FLOAT} for value in graph.outputs
    }
    for name, wanted_type in constraints.items():
        needed.setdefault(name, set()).add(FLOAT if wanted_type.scale is None else CODES)
    reads: dict[str, tuple[tuple[str, str], ...]] = {}
    for region in reversed(regions.regions):
        slots = slots_of(region, nodes)
        if _moves_codes(region, grids.movers):
            wanted = set().union(*(needed.get(output, set()) for output in region.outputs)) or {FLOAT}
            if CODES in wanted and not grids.takes_scale(slots[0].value, region.outputs, needed):
                wanted = {FLOAT}
            needed.setdefault(slots[0].value, set()).update(wanted)
            reads[region.name] = tuple((slot.value, FLOAT) for slot in slots)
            continue
        wanted = set().union(*(needed.get(output, set()) for output in region.outputs))
        if isinstance(region.formula, Concat):
            parts = [slot.value for slot in slots]
            form = CODES if wanted == {CODES} and grids.take_scale(parts, region.outputs[0]) else FLOAT
            reads[region.name] = tuple((part, form) for part in parts)
        else:
            reads[region.name] = tuple(
                (slot.value, _form(region, number, slot, grids, wanted)) for number, slot in enumerate(slots)
            )
        for value, form in reads[region.name]:
            if not isinstance(region.formula, Host):
                needed.setdefault(value, set()).add(form)
    stored = {
        value: tuple(form for form in (FLOAT, CODES) if form in forms) for value, forms in needed.items()
    }
    bools = frozenset(
        value.name or "" for node in graph for value in node.outputs if value.dtype == ir.DataType.BOOL
    )
    forms = Forms(grids.scales, reads, stored, bools, frozenset(grids.movers), grids.types)
    return replace(forms, constraints=_types(constraints), zero_points=grids.zero_points)


def _types(constraints: Mapping[str, Binding]) -> dict[str, str]:
    return {name: binding.dtype for name, binding in constraints.items()}


def _scales_of_codes(graph: ir.Graph, bindings: Mapping[str, Binding]) -> dict[str, float]:
    """The scale of every output that the caller gets as codes."""
    found = ((value.name or "", bindings.get(value.name or "")) for value in graph.outputs)
    return {
        name: binding.scale for name, binding in found if binding is not None and binding.scale is not None
    }


class _Grids:
    """On which grid each edge reads codes.

    Args:
        leaving: scales of outputs that the caller gets as codes: whatever reads these reads them too.
    """

    def __init__(
        self, graph: ir.Graph, quantized: QuantizedModel | None, leaving: Mapping[str, float]
    ) -> None:
        self.uses: Mapping[Use, str] = {} if quantized is None else quantized.placement.uses
        self.weights: frozenset[Use] = frozenset() if quantized is None else frozenset(quantized.weights)
        self.carried: dict[str, str] = {}
        self.movers: set[str] = set()
        self.types: dict[str, str] = {}
        self.scales: dict[str, float] = dict(leaving)
        self.zero_points: dict[str, int] = {}
        if quantized is None:
            return
        for name, qparams in quantized.activations.items():
            if name not in self.scales:
                self._put(name, (float(qparams.scale), int(qparams.zero_point)))
            if qparams.dtype != INT8 and self.scales[name] == float(qparams.scale):
                self.types[name] = qparams.dtype.name
        for node in graph:
            rule = rule_of(node, quantized.target)
            if rule is None or not rule.passes or not node.inputs or node.inputs[0] is None:
                continue
            found = [self._grid(node, index) for index in range(_moved_inputs(node))]
            grid = found[0]
            if grid is not None and all(self._is_same(grid, other) for other in found[1:]):
                self.movers.add(node.name or "")
                for output in node.outputs:
                    self.carried[output.name or ""] = grid
                    self._put(output.name or "", self._step(grid))
                    self._take_type(output.name or "", self.types.get(grid))

    def _grid(self, node: ir.Node, index: int) -> str | None:
        """The value on whose grid an input is, or None."""
        value = node.inputs[index]
        name = (value.name if value is not None else None) or ""
        return self.uses.get((node.name or "", index)) or self.carried.get(name)

    def _is_same(self, grid: str, other: str | None) -> bool:
        return other is not None and self._step(other) == self._step(grid)

    def _step(self, value: str) -> CodeStep | None:
        """Scale and zero point of a value; None where it has no codes."""
        return (self.scales[value], self.zero_points.get(value, 0)) if value in self.scales else None

    def _put(self, value: str, step: CodeStep | None) -> None:
        if step is None:
            return
        self.scales[value], zero_point = step
        self.zero_points.pop(value, None)
        if zero_point:
            self.zero_points[value] = zero_point

    def takes_scale(
        self, value: str, outputs: Collection[str], needed: Mapping[str, Collection[str]]
    ) -> bool:
        """Whether codes of a value are those of what is only moved; a value without a scale takes theirs."""
        found = {self._step(output) for output in outputs if CODES in needed.get(output, ())}
        step = found.pop() if len(found) == 1 else None
        if step is not None and value not in self.scales:
            self._take_type(value, next((self.types[x] for x in outputs if x in self.types), None))
            self._put(value, step)
        return step is not None and self._step(value) == step

    def _take_type(self, value: str, dtype: str | None) -> None:
        """Note the type of a value's codes; None for int8."""
        if dtype is not None:
            self.types[value] = dtype

    def take_scale(self, values: Collection[str], output: str) -> bool:
        """Whether codes of all values are those of the output they are parts of; as in `takes_scale`."""
        step = self._step(output)
        if step is None or any(self._step(value) not in (None, step) for value in values):
            return False
        for value in values:
            self._put(value, step)
            self._take_type(value, self.types.get(output))
        return True

    def has_codes(self, slot: Slot) -> bool:
        """Whether the edge reads codes."""
        return (slot.use is not None and slot.use in self.uses) or slot.value in self.carried


def _moved_inputs(node: ir.Node) -> int:
    """How many of the inputs of a node that moves values these are."""
    return len(node.inputs) if node.op_type == "Concat" else 1


def _moves_codes(region: Region, movers: Collection[str]) -> bool:
    if isinstance(region.formula, View):
        return True
    return isinstance(region.formula, Nodes) and len(region.nodes) == 1 and region.nodes[0] in movers


def _form(region: Region, number: int, slot: Slot, grids: _Grids, wanted: Collection[str]) -> str:
    """What a slot reads, when `wanted` are the forms in which the region's outputs are read."""
    formula = region.formula
    reads_codes = Gemm | Conv | ConvTranspose | Pool | Resize | GroupNorm | Rows
    if not isinstance(formula, reads_codes) or not grids.has_codes(slot):
        return FLOAT
    if isinstance(formula, GroupNorm) and slot.use in (formula.x, formula.shift):
        return FLOAT
    if number == 0 and isinstance(formula, Gemm | Conv | ConvTranspose) and formula.w not in grids.weights:
        return FLOAT
    if number == 0 and isinstance(formula, Pool | Resize) and formula.x[0] in grids.movers:
        return CODES if CODES in wanted else FLOAT
    if number == 0 and isinstance(formula, Resize):
        return FLOAT
    return CODES


def _slots(region: Region, nodes: Mapping[str, ir.Node]) -> Iterator[Slot]:
    match region.formula:
        case Gemm(x=edge) | Conv(x=edge) | ConvTranspose(x=edge) | Pool(x=edge) | Resize(x=edge):
            yield _slot(edge, nodes)
        case GroupNorm(x=edge, shift=shift):
            yield from (_slot(one, nodes) for one in (edge, shift) if one is not None)
        case Attention(edges=edges, has_mask=has_mask):
            yield from (_slot(edge, nodes) for edge in edges)
            if has_mask:
                yield Slot(region.inputs[-1])
        case Concat(edges=edges):
            yield from (_slot(edge, nodes) for edge in edges)
        case Rows():
            pass
        case _:
            yield from (Slot(value) for value in region.inputs)
    expression = expression_of(region)
    if expression is not None:
        yield from (Slot(x.name, x.use) for x in expression.operands if x.kind == "tensor")


def _slot(edge: Use, nodes: Mapping[str, ir.Node]) -> Slot:
    value = nodes[edge[0]].inputs[edge[1]]
    return Slot((value.name if value is not None else None) or "", edge)
