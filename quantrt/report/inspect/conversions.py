# SPDX-License-Identifier: Apache-2.0
"""Where a plan for a GPU changes between codes and floats: what tells, before any timing, how int8 will pay.

Two counts foretell a network that is no faster in int8: copies that change the element type, and convolutions
that read codes and write floats (in the profiles of a ResNet-18 that NVIDIA ships with TensorRT Engine
Explorer, 12 and 13 where residual sums stay float, 1 and 1 where they do not, at 1.10 and 0.67 ms).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quantrt.model.for_gpu import for_gpu
from quantrt.model.model import Model
from quantrt.plan.program import Program
from quantrt.quantize.explicit.read import read
from quantrt.quantize.placement.obstacle import is_quantized
from quantrt.regions.partition import partition
from quantrt.report.tables import facts, show, table
from quantrt.tactics.cuda.forms.forms import choose_forms
from quantrt.tactics.cuda.forms.nominal import nominal
from quantrt.tactics.cuda.program.assemble import Item
from quantrt.tactics.cuda.program.frame import make_frame

__all__ = ["conversions_of_model", "conversions_of_program", "show_conversions"]

FLOAT_TYPE = "float16"
"""What a plan in int8 stores floats in."""

CODES = ("int8", "float8")
"""How the names of element types of codes begin."""

NAMED = 3
"""Readers that a reason names."""

SHOWN = 8
"""Rows that are shown without being asked for."""

Tensors = tuple[tuple[str, str], ...]
"""(buffer, element type); the type is empty where it is not known."""


@dataclass(frozen=True)
class _Row:
    """One region of a plan.

    Attributes:
        kind: of its formula.
        is_inserted: it is no node's, but changes the form of a value.
    """

    name: str
    kind: str
    inputs: Tensors
    outputs: Tensors
    is_inserted: bool


def conversions_of_model(model: Model) -> dict[str, Any]:
    """The counts of an int8 plan: as the rules for NVIDIA GPUs place it, or as the model's own pairs do.

    Needs no ranges: these decide no edge. JSON-ready, as `conversions_of_program`.
    """
    model = for_gpu(model)
    quantized = read(model) if is_quantized(model.graph.graph) else nominal(model)
    regions = partition(quantized.graph)
    forms = choose_forms(quantized.graph.graph, regions, quantized)
    frame = make_frame(quantized.graph, regions, forms, quantized, FLOAT_TYPE)
    types = dict(frame.program.inputs)
    rows = []
    for item in frame.items:
        types.update(zip(item.outputs, _stored(item), strict=True))
        rows.append(_row_of(item, types))
    return _found(rows, frame.program)


def conversions_of_program(program: Program) -> dict[str, Any] | None:
    """{"reformats": [{tensor, from, to, reason}], "convolutions": n, "float_convolutions": [{name, reason}]}.

    Reformats are copies that change the element type; of `convolutions`, those that read codes, the ones in
    `float_convolutions` write floats alone. None for an engine that does not tell its regions' tensors.
    """
    notes: Mapping[str, Mapping[str, Any]] = program.notes.get("regions", {})
    if not all({"inputs", "outputs"} <= row.keys() for row in notes.values()):
        return None
    rows = [
        _Row(
            name,
            str(row["formula"]),
            tuple((buffer, dtype or "") for buffer, dtype, *_ in row["inputs"]),
            tuple((buffer, dtype or "") for buffer, dtype, *_ in row["outputs"]),
            row["formula"] == "Rows" and not row["nodes"],
        )
        for name, row in notes.items()
    ]
    return _found(rows, program)


def show_conversions(title: str, data: Mapping[str, Any], *, layers: bool) -> None:
    """Both counts, and which they are; with `layers` all of them."""
    reformats, floats = data["reformats"], data["float_convolutions"]
    copies = f"{len(reformats)} {'copy changes' if len(reformats) == 1 else 'copies change'} the element type"
    text = f"{copies}, {len(floats)} of the {data['convolutions']} convolutions of codes write floats"
    show("", facts([(title, text)]))
    rows = [(f"copy of {row['tensor']}", f"{row['from']} to {row['to']}", row["reason"]) for row in reformats]
    rows += [(row["name"], "codes to floats", row["reason"]) for row in floats]
    if rows:
        kept = rows if layers else rows[:SHOWN]
        show("", table(("layer", "changes", "why"), kept, left=("changes",), fold=("layer", "why")))
    if not layers and len(rows) > SHOWN:
        show(f"and {len(rows) - SHOWN} more: --layers lists all")


def _stored(item: Item) -> Sequence[str]:
    """Element types of what an item makes; of nodes and views, codes where the buffer's name says so."""
    if item.lowered is not None:
        return item.lowered.types
    return tuple(name.partition("#")[2] or FLOAT_TYPE for name in item.outputs)


def _row_of(item: Item, types: Mapping[str, str]) -> _Row:
    lowered, step = item.lowered, item.step
    kind = type(lowered.formula).__name__ if lowered is not None else step.runner if step is not None else ""
    return _Row(
        item.region,
        kind,
        tuple((name, types.get(name, "")) for name in item.inputs),
        tuple((name, types.get(name, "")) for name in item.outputs),
        lowered is not None and not lowered.region.nodes,
    )


def _found(rows: Sequence[_Row], program: Program) -> dict[str, Any]:
    outputs = {buffer for _, buffer, _ in program.outputs}
    makers = {buffer: row for row in rows for buffer, _ in row.outputs}
    convolutions = [row for row in rows if row.kind in ("Conv", "ResizedConv") and _are_codes(row.inputs[:1])]
    return {
        "reformats": [_reformat(row, makers) for row in rows if row.is_inserted and _changes(row)],
        "convolutions": len(convolutions),
        "float_convolutions": [
            {"name": row.name, "reason": _why_float(row, rows, outputs)}
            for row in convolutions
            if not any(_is_code(dtype) for _, dtype in row.outputs)
        ],
    }


def _changes(row: _Row) -> bool:
    return {dtype for _, dtype in row.inputs} != {dtype for _, dtype in row.outputs}


def _reformat(row: _Row, makers: Mapping[str, _Row]) -> dict[str, str]:
    (source, before), (_, after) = row.inputs[0], row.outputs[0]
    maker = makers.get(source)
    reason = "an input of the model" if maker is None else f"'{maker.name}' ({maker.kind}) stores {before}"
    return {"tensor": source, "from": before, "to": after, "reason": reason}


def _why_float(row: _Row, rows: Iterable[_Row], outputs: Collection[str]) -> str:
    made = {buffer for buffer, _ in row.outputs}
    if not made.isdisjoint(outputs):
        return "its result is an output of the model"
    readers = [f"'{x.name}' ({x.kind})" for x in rows if made & {buffer for buffer, _ in x.inputs}]
    more = f" and {len(readers) - NAMED} more" if len(readers) > NAMED else ""
    return f"read as floats by {', '.join(readers[:NAMED])}{more}" if readers else "nothing reads it"


def _are_codes(tensors: Tensors) -> bool:
    return any(_is_code(dtype) for _, dtype in tensors)


def _is_code(dtype: str) -> bool:
    return dtype.startswith(CODES)
