# SPDX-License-Identifier: Apache-2.0
"""In which forms every value exists: as floats, as codes, or as both; decided by who reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from quantrt.dtypes import INT8
from quantrt.model.binding import Binding
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.regions.region import (
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
from quantrt.tactics.cuda.forms.angles import angles
from quantrt.tactics.cuda.forms.grids import CodeStep, Grids
from quantrt.tactics.cuda.forms.slots import Slot, slots_of

__all__ = ["CODES", "FLOAT", "Forms", "choose_forms"]

FLOAT = "float"
CODES = "codes"


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
    grids = Grids(graph, quantized, leaving)
    nodes = {node.name or "": node for node in graph}
    needed: dict[str, set[str]] = {
        value.name or "": {CODES if (value.name or "") in codes else FLOAT} for value in graph.outputs
    }
    for name, wanted_type in constraints.items():
        needed.setdefault(name, set()).add(FLOAT if wanted_type.scale is None else CODES)
    reads: dict[str, tuple[tuple[str, str], ...]] = {}
    for region in reversed(regions.regions):
        slots = slots_of(region, nodes)
        wanted = set().union(*(needed.get(output, set()) for output in region.outputs))
        if _moves_codes(region, grids.movers):
            coded = [output for output in region.outputs if CODES in needed.get(output, ())]
            if CODES in wanted and not grids.join_moved(slots[0].value, region.outputs, coded):
                wanted = {FLOAT}
            needed.setdefault(slots[0].value, set()).update(wanted or {FLOAT})
            reads[region.name] = tuple((slot.value, FLOAT) for slot in slots)
            continue
        reads[region.name] = _reads(region, slots, grids, wanted)
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
    wide = (_row_factors(regions) | angles(graph, regions)) - constraints.keys()
    return replace(forms, constraints=_types(constraints), zero_points=grids.zero_points, wide=wide)


def _row_factors(regions: Regions) -> frozenset[str]:
    """Values with a number for each row of a product that is multiplied with them, such as its scale.

    They cost next to nothing, and all of a row is as wrong as its number is.
    """
    of_rows = {
        value
        for region in regions.regions
        if isinstance(region.formula, Rows)
        for value, is_row in zip(region.outputs, region.formula.expression.row_outputs, strict=True)
        if is_row
    }
    products = (region.formula for region in regions.regions if isinstance(region.formula, Gemm))
    return frozenset(x.name for formula in products for x in formula.epilogue.operands if x.name in of_rows)


def _types(constraints: Mapping[str, Binding]) -> dict[str, str]:
    return {name: binding.dtype for name, binding in constraints.items()}


def _scales_of_codes(graph: ir.Graph, bindings: Mapping[str, Binding]) -> dict[str, float]:
    """The scale of every output that the caller gets as codes."""
    found = ((value.name or "", bindings.get(value.name or "")) for value in graph.outputs)
    return {
        name: binding.scale for name, binding in found if binding is not None and binding.scale is not None
    }


def _moves_codes(region: Region, movers: Collection[str]) -> bool:
    if isinstance(region.formula, View):
        return True
    return isinstance(region.formula, Nodes) and len(region.nodes) == 1 and region.nodes[0] in movers


def _reads(
    region: Region, slots: Sequence[Slot], grids: Grids, wanted: set[str]
) -> tuple[tuple[str, str], ...]:
    """What a region reads, and in which form, when `wanted` are those in which its outputs are read."""
    if not isinstance(region.formula, Concat):
        forms = (_form(region, number, slot, grids, wanted) for number, slot in enumerate(slots))
        return tuple((slot.value, form) for slot, form in zip(slots, forms, strict=True))
    parts = [slot.value for slot in slots]
    form = CODES if wanted == {CODES} and grids.join_parts(parts, region.outputs[0]) else FLOAT
    return tuple((part, form) for part in parts)


def _form(region: Region, number: int, slot: Slot, grids: Grids, wanted: Collection[str]) -> str:
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
