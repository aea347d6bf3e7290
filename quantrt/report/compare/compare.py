# SPDX-License-Identifier: Apache-2.0
"""How far the outputs, and the tensors inside, of one model are from another's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from quantrt.calibrate.dataset import Dataset
from quantrt.config import CompareConfig
from quantrt.errors import DataError, ModelError
from quantrt.model.load import load_model
from quantrt.reference.metrics import Error
from quantrt.reference.row_sets import RowSet, RowTally, compared_sets, in_rows_of, row_sets
from quantrt.report.compare.comparable import Run, check_inputs, check_types, run_like
from quantrt.report.compare.limits import violations_of
from quantrt.report.layer_errors.graphs import has_float_and_quantized
from quantrt.report.layer_errors.three_way import Counter, compare_three_ways, uncounted
from quantrt.report.subject import Subject, own_rows

__all__ = ["compare"]

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
    check_inputs(reference, subject)
    is_three_way = layers and has_float_and_quantized(reference, subject)
    if layers:
        check_types(reference, subject)
    inner = _shared_tensors(reference, subject) if layers and not is_three_way else {}
    on_progress = counter("comparing", "samples")
    sets = row_sets(load_model(reference.path).graph.graph) if reference.kind == "onnx" else ()
    found = _compare_runs(
        reference.run, run_like(subject, reference), dataset, config, on_progress, sets=sets
    )
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
