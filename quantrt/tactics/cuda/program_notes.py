# SPDX-License-Identifier: Apache-2.0
"""What a program for a GPU tells of its regions: tactics, rivals, sizes, work; JSON-ready.

"regions"      by region: what it computes, its codes ("int8", "fp8" or none), its tactic, times and tensors
               at the shapes they were timed at
"candidates"   by the key of a workload: [name, median_us or null, reason] of tactics that were not taken
"mismatches"   [pattern, reason, node] of fusions that did not happen
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quantrt.dtypes import precision_of
from quantrt.regions.expression import Expression
from quantrt.regions.formula_expression import expression_of
from quantrt.regions.region import (
    Attention,
    Conv,
    ConvTranspose,
    Formula,
    Gemm,
    GroupNorm,
    Mismatch,
    Pool,
    Regions,
    Resize,
    ResizedConv,
    Rows,
)
from quantrt.tactics.cuda.program.assemble import Item
from quantrt.tactics.cuda.program.frame import Frame
from quantrt.tactics.cuda.tactic import CODED, TensorFacts
from quantrt.tactics.cuda.tuning.choices import Candidate, Choice, Choices
from quantrt.tactics.cuda.tuning.estimate import work_of

__all__ = ["program_notes"]

MAX_TIMED = 6
MAX_REJECTED = 8
"""Rivals that are noted of one workload: the fastest, and one for every reason why others cannot be used."""


def program_notes(
    frame: Frame,
    regions: Regions,
    choices: Choices,
    facts: Mapping[str, TensorFacts],
    beside: Mapping[str, Mapping[str, float]],
    *,
    live_rows: int | None = None,
) -> dict[str, Any]:
    """All that is known when a program has been tuned.

    Args:
        facts: of every buffer, at the shapes that were timed.
        beside: by region, microseconds of its fastest tactic in other precisions, by their names.
        live_rows: of regions without padding, as in Workload.
    """
    rows = {item.region: _row(item, choices, facts, live_rows) for item in frame.items}
    for name in rows.keys() & beside.keys():
        rows[name]["beside_us"] = dict(beside[name])
    taken = {
        choice.key: f"{choice.tactic.source}: {choice.tactic.name}" for choice in choices.by_region.values()
    }
    return {
        "regions": rows,
        "candidates": {
            key: [*_rivals(table, taken.get(key, ""))] for key, table in choices.candidates.items()
        },
        "mismatches": [[row.pattern, row.reason, row.node] for row in _sorted(regions.mismatches)],
        "compile_s": round(choices.compile_s, 2),
        "timing_s": round(choices.timing_s, 2),
        "tuning": list(choices.notes),
    }


def _row(
    item: Item, choices: Choices, facts: Mapping[str, TensorFacts], live_rows: int | None
) -> dict[str, Any]:
    """One region. Bytes and operations are those of the least work that any tactic has to do."""
    choice = choices.by_region.get(item.region)
    lowered = item.lowered
    formula = None if lowered is None else lowered.formula
    weight = None if lowered is None else lowered.weight
    work = None
    if lowered is not None and all(buffer in facts for buffer in item.inputs):
        workload = lowered.workload([facts[buffer] for buffer in item.inputs])
        work = work_of(replace(workload, live_rows=live_rows) if item.live else workload)
    return {
        "formula": type(formula).__name__ if formula is not None else item.step and item.step.runner,
        "nodes": [] if lowered is None else list(lowered.region.nodes),
        "product": None if formula is None else _product(formula),
        "reads": item.inputs[0] if item.inputs else "",
        "codes": _codes(weight, choice),
        "tactic": None if choice is None else f"{choice.tactic.source}: {choice.tactic.name}",
        "median_us": None if choice is None else choice.median_us,
        "origin": None if choice is None else choice.origin,
        "key": None if choice is None else choice.key,
        "inputs": [_tensor(buffer, facts) for buffer in item.inputs],
        "outputs": [_tensor(buffer, facts) for buffer in item.outputs],
        "bytes": None if work is None else work.moved_bytes,
        "operations": None if work is None else 2 * work.products,
        "attributes": {} if formula is None else dict(_attributes(formula, weight)),
    }


def _product(formula: Formula) -> str | None:
    """The node of the product that a region is; None where it is none."""
    formula = formula.convolution if isinstance(formula, ResizedConv) else formula
    return formula.x[0] if isinstance(formula, Gemm | Conv | ConvTranspose) else None


def _codes(weight: np.ndarray | None, choice: Choice | None) -> str:
    """What a region multiplies: the precision of its codes; empty where it multiplies floats or nothing."""
    if weight is None:
        return "int8" if choice is not None and CODED in choice.tactic.name.split() else ""
    return precision_of(str(weight.dtype))


def _tensor(buffer: str, facts: Mapping[str, TensorFacts]) -> list[Any]:
    """[name, element type, shape, whether axis 1 lies innermost]; nulls where it is no tensor on the GPU."""
    found = facts.get(buffer)
    if found is None:
        return [buffer, None, None, False]
    is_image = len(found.shape) > 2 and found.strides[1] == 1 and found.shape[1] > 1
    return [buffer, found.dtype, list(found.shape), is_image]


def _attributes(formula: Formula, weight: np.ndarray | None) -> Iterator[tuple[str, Any]]:
    """What a reader knows an operator by."""
    match formula:
        case Conv() | ConvTranspose():
            yield "kernel", [] if weight is None else list(weight.shape[2:])
            yield "strides", list(formula.strides)
            yield "pads", list(formula.pads)
            yield "dilations", list(formula.dilations)
            yield "groups", formula.groups
        case Pool():
            yield "mode", f"global {formula.kind}" if formula.is_global else formula.kind
            for name in ("kernel", "strides", "pads", "dilations"):
                yield name, list(getattr(formula, name))
        case Resize():
            yield "mode", "nearest" if formula.is_nearest else "linear"
            yield "scales", list(formula.scales)
        case ResizedConv(resize, convolution):
            yield "resized", list(resize.scales)
            yield from _attributes(convolution, weight)
            return
        case GroupNorm():
            yield "groups", formula.groups
            yield "channels", formula.channels
        case Attention():
            yield "scale", formula.scale
            yield "has_mask", formula.has_mask
        case _:
            pass
    expression = formula.epilogue if isinstance(formula, Attention) else expression_of(formula)
    if expression is not None:
        yield "expression" if isinstance(formula, Rows) else "epilogue", _operations_of(expression)
    if weight is not None:
        yield "weight", [str(weight.dtype), list(weight.shape)]


def _operations_of(expression: Expression) -> list[str]:
    return [instruction.op for instruction in expression.instructions]


def _rivals(table: Sequence[Candidate], taken: str) -> Iterator[list[Any]]:
    """The fastest of those that were timed, then one of every source and reason, with how many more."""
    others = [row for row in table if f"{row.source}: {row.name}" != taken]
    timed = [row for row in others if row.timing is not None]
    for row in timed[:MAX_TIMED]:
        yield [f"{row.source}: {row.name}", row.timing and row.timing.median_us, "slower"]
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in others:
        if row.timing is None:
            reasons.setdefault((row.source, row.reason), []).append(row.name)
    for (source, reason), names in list(reasons.items())[:MAX_REJECTED]:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield [f"{source}: {names[0]}{more}", None, reason]


def _sorted(mismatches: Sequence[Mismatch]) -> list[Mismatch]:
    return sorted(mismatches, key=lambda row: (row.pattern, row.node, row.reason))
