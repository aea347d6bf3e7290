# SPDX-License-Identifier: Apache-2.0
"""How far the outputs, and the tensors inside, of one model are from another's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from quantrt.calibrate.converted import bound_inputs, given_outputs
from quantrt.calibrate.dataset import Dataset
from quantrt.config import CompareConfig
from quantrt.errors import DataError, ModelError, UsageError
from quantrt.ir.tensor_spec import Dim
from quantrt.model.load import load_model
from quantrt.reference.metrics import Error
from quantrt.reference.row_sets import RowSet, RowTally, compared_sets, in_rows_of, row_sets
from quantrt.report.layer_errors.graphs import has_float_and_quantized
from quantrt.report.layer_errors.show import WORST, show_three_ways
from quantrt.report.layer_errors.three_way import Counter, compare_three_ways, uncounted
from quantrt.report.quantities import db_text, error_text
from quantrt.report.subject import Subject, own_rows
from quantrt.report.tables import heading, show, table, verdict

__all__ = ["compare", "limits_text", "show_comparison", "violations_of"]

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
Progress = Callable[[int, int | None], None]

TAPS_PER_PASS = 32
"""Tensors tapped at once: bounds memory on models with thousands of them."""


@dataclass
class _Tensors:
    """Running comparison of named tensors; a tensor that cannot be compared has a reason instead."""

    errors: dict[str, Error] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    samples: int = 0
    sets: tuple[RowSet, ...] = ()
    tallies: dict[str, RowTally] = field(default_factory=dict)

    def add(self, ref: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> None:
        got = in_rows_of(ref, got, self.sets, self.tallies)
        for name in dict.fromkeys((*ref, *got)):
            reason = _why_not(name, ref, got)
            if reason is not None:
                self.skipped[name] = reason
                self.errors.pop(name, None)
            elif name not in self.skipped:
                self.errors.setdefault(name, Error()).add(ref[name], got[name])


def compare(
    reference: Subject,
    subject: Subject,
    dataset: Dataset,
    config: CompareConfig,
    *,
    layers: bool = False,
    counter: Counter = uncounted,
) -> dict[str, Any]:
    """Compare two models on data.

    Args:
        layers: also look inside. Where B is quantized and A the float model it was made of, every layer is
            compared in floats, fake-quantized and compiled (see `quantrt.report.layer_errors`); otherwise
            every tensor that both make under one name. Tapping a tensor keeps the library from fusing across
            it, so these are the numbers of the unfused layers.
        counter: makes a progress callback of a title and a unit.

    Returns:
        JSON-ready facts: a row per output, the layers, whether all limits hold.

    Raises:
        UsageError: the models take different inputs, or one of them cannot be looked into.
        ModelError: there is no output that can be compared.
        DataError: the data are empty.
    """
    _check_inputs(reference, subject)
    is_three_way = layers and has_float_and_quantized(reference, subject)
    if layers:
        _check_types(reference, subject)
    inner = _shared_tensors(reference, subject) if layers and not is_three_way else {}
    on_progress = counter("comparing", "samples")
    sets = row_sets(load_model(reference.path).graph.graph) if reference.kind == "onnx" else ()
    found = _compare_runs(reference.run, _like(subject, reference), dataset, config, on_progress, sets=sets)
    if not found.errors:
        reasons = "; ".join(f"'{name}': {reason}" for name, reason in found.skipped.items())
        raise ModelError(f"'{reference.name}' and '{subject.name}' have no output to compare", got=reasons)
    rows = [_row(name, found, config) for name in (*found.errors, *found.skipped)]
    compared = compared_sets(sets, found.tallies)
    return {
        "reference": reference.name,
        "subject": subject.name,
        "samples": found.samples,
        "limits": {
            "min_sqnr_db": config.min_sqnr_db,
            "min_cosine": config.min_cosine,
            "max_abs": config.max_abs,
        },
        "outputs": rows,
        "layers": _layer_rows(reference, subject, dataset, config, inner) if inner else None,
        "three_way": compare_three_ways(reference, subject, dataset, config, counter)
        if is_three_way
        else None,
        "sets": [asdict(one) for one in compared],
        "notes": [*reference.notes, *subject.notes, *map(str, compared)],
        "passed": all(row["passed"] for row in rows if row["skipped"] is None),
    }


def show_comparison(data: Mapping[str, Any], *, every: bool = False) -> None:
    """The comparison as tables, ending with PASSED or FAILED.

    Args:
        every: all layers, in the order they run; otherwise the worst.
    """
    show(heading(f"{data['subject']} against {data['reference']}, {data['samples']} samples"))
    columns = ("output", "max abs", "cosine", "SQNR dB", "")
    rows = [
        (
            *_cells(row),
            row["skipped"] or ("ok" if row["passed"] else "FAILED: " + ", ".join(row["violations"])),
        )
        for row in data["outputs"]
    ]
    show(table(columns, rows, fold=("output", "")))
    if data["layers"] is not None:
        _show_layers(data["layers"], every=every)
    if data["three_way"] is not None:
        show_three_ways(data["three_way"], every=every)
    show(*(f"note: {note}" for note in data["notes"]))
    compared = sum(row["skipped"] is None for row in data["outputs"])
    limits = ", ".join(limits_text(data["limits"]))
    show(
        "",
        verdict(data["passed"], f"{compared} of {len(data['outputs'])} outputs compared, limits: {limits}"),
    )


def _show_layers(layers: Sequence[Mapping[str, Any]], *, every: bool) -> None:
    """Tensors that both have; unless all are asked for, those with the least SQNR."""
    rows = list(layers) if every else sorted(layers, key=lambda row: _badness(row["sqnr_db"]))[:WORST]
    inner = [(row["op_type"], *_cells(row)) for row in rows]
    columns = ("operator", "tensor", "max abs", "cosine", "SQNR dB")
    show("", heading(f"{len(rows)} of {len(layers)} tensors inside" + ("" if every else ", the worst first")))
    show(table(columns, inner, left=("operator",), fold=("tensor",)))
    if len(rows) < len(layers):
        show(f"and {len(layers) - len(rows)} more, which are closer: --all shows every tensor")


def _badness(sqnr_db: float) -> float:
    """For sorting: NaN first."""
    return -math.inf if math.isnan(sqnr_db) else sqnr_db


def _check_inputs(reference: Subject, subject: Subject) -> None:
    a, b = ({spec.name for spec in side.inputs} for side in (reference, subject))
    if a != b:
        raise UsageError(
            f"cannot compare '{reference.name}' and '{subject.name}': they take different inputs",
            got=", ".join(map(repr, sorted(b))),
            expected=", ".join(map(repr, sorted(a))),
            hint="`quantrt inspect` of each, for what it takes and gives",
        )
    if reference.plan is not None or subject.plan is not None:
        return  # an engine may have layouts of its own
    given = {spec.name: spec for spec in subject.inputs}
    for spec in reference.inputs:
        if not _may_be_one(spec.shape, given[spec.name].shape):
            raise UsageError(
                f"cannot compare '{reference.name}' and '{subject.name}': their inputs '{spec.name}' differ",
                got=str(given[spec.name]),
                expected=str(spec),
                hint="`quantrt inspect` of each, for what it takes and gives",
            )


def _may_be_one(shape: tuple[Dim, ...] | None, other: tuple[Dim, ...] | None) -> bool:
    """Whether a tensor can have both shapes, whatever the number of samples: the first axis."""
    if shape is None or other is None:
        return True
    sizes = zip(shape[1:], other[1:], strict=False)
    is_same = all(a == b for a, b in sizes if isinstance(a, int) and isinstance(b, int))
    return len(shape) == len(other) and is_same


def _check_types(reference: Subject, subject: Subject) -> None:
    """Fail where B cannot be looked into beside A: it takes inputs of another type or layout."""
    own = {spec.name: spec for spec in reference.inputs}
    for spec in subject.inputs if subject.plan is None else subject.plan.inputs:
        if spec.layout or spec.scale is not None or spec.dtype != own[spec.name].dtype:
            raise UsageError(
                f"cannot compare the layers of '{subject.name}': its inputs are not as those of "
                f"'{reference.name}'",
                got=str(spec),
                expected=str(own[spec.name]),
                hint="an engine built without --input-types and --input-layouts, or without --layers",
            )


def _like(subject: Subject, reference: Subject) -> Run:
    """The run of B on the arrays of A, where B is an engine with types and layouts of its own."""
    plan = subject.plan
    if plan is None or (reference.plan is not None and reference.plan.inputs == plan.inputs):
        return subject.run
    return lambda inputs: given_outputs(subject.run(bound_inputs(inputs, plan.inputs)), plan.outputs)


def _compare_runs(
    run_a: Run,
    run_b: Run,
    dataset: Dataset,
    config: CompareConfig,
    on_progress: Progress | None,
    *,
    sets: tuple[RowSet, ...] = (),
) -> _Tensors:
    found = _Tensors(sets=sets, tallies={one.node: RowTally() for one in sets})
    for batch in dataset.batches(config.batch_size, config.max_samples):
        ref, got = (own_rows(run(batch.inputs), batch, dataset) for run in (run_a, run_b))
        found.add(ref, got)
        found.samples += batch.count
        if on_progress is not None:
            on_progress(found.samples, None)
    if found.samples == 0:
        raise DataError(f"cannot compare on '{dataset.source}': it has no samples")
    return found


def _why_not(name: str, ref: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> str | None:
    """Why a tensor cannot be compared; None when it can."""
    if name not in ref or name not in got:
        return "only in A" if name in ref else "only in B"
    if ref[name].dtype.kind in "OSUT":
        return "text"
    if ref[name].shape != got[name].shape:
        return f"shapes {ref[name].shape} and {got[name].shape}"
    return None


def _row(name: str, found: _Tensors, config: CompareConfig) -> dict[str, Any]:
    if name in found.skipped:
        return {"name": name, "skipped": found.skipped[name], "passed": None, "violations": []}
    error = found.errors[name]
    violations = violations_of(error, config)
    return {
        "name": name,
        "skipped": None,
        **_figures(error),
        "passed": not violations,
        "violations": violations,
    }


def _figures(error: Error) -> dict[str, float]:
    return {
        "max_abs": error.max_abs,
        "cosine": error.cosine,
        "sqnr_db": error.sqnr_db,
        "elements": error.count,
    }


def violations_of(error: Error, config: CompareConfig) -> list[str]:
    """The limits that do not hold. NaN holds none of them, hence `not (a >= b)`."""
    violations = []
    if config.min_sqnr_db is not None and not error.sqnr_db >= config.min_sqnr_db:
        violations.append(f"SQNR < {config.min_sqnr_db:g} dB")
    if config.min_cosine is not None and not error.cosine >= config.min_cosine:
        violations.append(f"cosine < {config.min_cosine:g}")
    if config.max_abs is not None and not error.max_abs <= config.max_abs:
        violations.append(f"max abs > {config.max_abs:g}")
    return violations


def _shared_tensors(reference: Subject, subject: Subject) -> dict[str, str]:
    """Tensors inside both -> operator that makes them in the reference."""
    theirs = subject.tensors()
    shared = {name: op_type for name, op_type in reference.tensors().items() if name in theirs}
    if not shared:
        raise ModelError(f"'{reference.name}' and '{subject.name}' have no tensor of one name inside")
    return shared


def _layer_rows(
    reference: Subject,
    subject: Subject,
    dataset: Dataset,
    config: CompareConfig,
    operators: Mapping[str, str],
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    names = list(operators)
    for start in range(0, len(names), TAPS_PER_PASS):
        group = names[start : start + TAPS_PER_PASS]
        with closing(reference.tap(group)) as a, closing(subject.tap(group)) as b:
            found = _compare_runs(a.run, b.run, dataset, config, None)
        rows += [
            {"name": name, "op_type": operators[name], **_figures(found.errors[name])}
            for name in group
            if name in found.errors
        ]
    return rows


def _cells(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    if row.get("skipped"):
        return (row["name"], "-", "-", "-")
    return (row["name"], error_text(row["max_abs"]), f"{row['cosine']:.6f}", db_text(row["sqnr_db"]))


def limits_text(limits: Mapping[str, float | None]) -> list[str]:
    """A phrase for each limit that is checked."""
    words = {"min_sqnr_db": "SQNR >= {:g} dB", "min_cosine": "cosine >= {:g}", "max_abs": "max abs <= {:g}"}
    return [text.format(limits[name]) for name, text in words.items() if limits[name] is not None]
