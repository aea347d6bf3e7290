# SPDX-License-Identifier: Apache-2.0
"""Every integer region of an engine on data: the codes it makes of the codes it reads, against the reference.

Each region gets what the engine itself has at its inputs, so that a difference is this region's own.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.dataset import Dataset
from quantrt.config import CompareConfig
from quantrt.errors import DataError, ModelError, UsageError
from quantrt.model.passes.spell.lift_constants import lift_constants
from quantrt.model.passes.spell.spell_contrib import spell_contrib
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program import codes_of
from quantrt.quantize.explicit.operators import spell_integer_operators
from quantrt.report.codes.compute import Codes, expected_codes
from quantrt.report.codes.find import CodeRegion, Skipped, find_regions
from quantrt.report.codes.unsigned import unsigned_codes
from quantrt.report.layer_errors.graphs import fake_graph_of, float_model_of, library_graph
from quantrt.report.layer_errors.three_way import Counter, uncounted
from quantrt.report.subject import Subject
from quantrt.report.tables import heading, show, table, verdict

__all__ = ["RegionCodes", "add_samples", "code_regions", "compare_codes", "show_codes"]

Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

NEWEST_OPSET = 25

SAMPLES = 16
"""Compared where no other number is asked for: the reference takes its time."""

REGIONS_PER_PASS = 32

MIDPOINT_STEPS = 2.0**-12
"""How near to the middle between two codes float32 may take the other one: of its 24 bits a code uses 8, and
a few roundings of sums and products one or two more each."""

SHOWN = 20


@dataclass
class RegionCodes:
    """What was found of one region.

    Attributes:
        codes: how many were compared.
        differ: of them, those that are not the reference's.
        at_midpoint: of those, the ones beside it for a rounding of float32.
        rounded_bias: and those that a bias explains which was rounded to the grid of the sums.
        largest: difference.
    """

    region: CodeRegion
    codes: int = 0
    differ: int = 0
    at_midpoint: int = 0
    rounded_bias: int = 0
    largest: int = 0

    def add(self, got: np.ndarray, want: Codes, rounded: Callable[[], Codes] | None) -> None:
        """One batch.

        Args:
            got: codes of the engine.
            want: codes of the reference.
            rounded: makes those of the reference with rounded biases; None where the library rounds none.
        """
        codes = got.astype(np.int64).reshape(want.codes.shape)
        is_other, is_near = _differing(codes, want)
        self.codes += codes.size
        self.differ += int(np.count_nonzero(is_other))
        self.at_midpoint += int(np.count_nonzero(is_near))
        self.largest = max(self.largest, int(np.abs(codes - want.codes).max(initial=0)))
        if rounded is not None and np.any(is_other & ~is_near):
            is_wrong, is_right_nearly = _differing(codes, rounded())
            explained = is_other & ~is_near & (~is_wrong | is_right_nearly)
            self.rounded_bias += int(np.count_nonzero(explained))

    @property
    def is_equal(self) -> bool:
        """Whether every code is the reference's, or beside it for a rounding that is known."""
        return self.differ == self.at_midpoint + self.rounded_bias


def _differing(codes: np.ndarray, want: Codes) -> tuple[np.ndarray, np.ndarray]:
    """Which codes are not the reference's; which of these are beside it, at a midpoint."""
    distance = np.abs(codes - want.codes)
    from_midpoint = np.abs(want.exact - np.floor(want.exact) - 0.5)
    return distance > 0, (distance == 1) & (from_midpoint <= MIDPOINT_STEPS)


def compare_codes(
    reference: Subject,
    subject: Subject,
    dataset: Dataset,
    config: CompareConfig,
    *,
    counter: Counter = uncounted,
) -> dict[str, Any]:
    """Compare the codes of B with those that its final graph defines.

    Args:
        reference: the float model that an engine for a GPU was built from; of others nothing is read of it.

    Returns:
        JSON-ready facts: a row per region, what could not be compared and why, whether all codes are right.

    Raises:
        UsageError: the engine shows no codes.
        ModelError: it has no region between codes; a node cannot be computed.
        DataError: the data are empty.
    """
    model = unsigned_codes(subject.model) if subject.model.library == "onnxruntime" else subject.model
    graph = _graph_of(reference, subject, model)
    found = list(code_regions(graph, subject.model.library, subject.tensors()))
    regions = [each for each in found if isinstance(each, CodeRegion)]
    skipped = Counts(each.reason for each in found if isinstance(each, Skipped))
    if not regions:
        why = "; ".join(f"{reason} ({count})" for reason, count in skipped.items())
        raise ModelError(f"'{subject.name}' has no region that makes codes of codes", got=why or "no codes")
    rows = [RegionCodes(region) for region in regions]
    on_progress = counter("comparing codes", "regions")
    opset = graph.opset_imports.get("", NEWEST_OPSET)
    samples = 0
    for start in range(0, len(rows), REGIONS_PER_PASS):
        group = rows[start : start + REGIONS_PER_PASS]
        names = _read(group, {spec.name for spec in subject.inputs})
        with closing(subject.tap(names, model)) as engine:
            samples = add_samples(
                group, engine.run, dataset, config, opset=opset, library=subject.model.library
            )
        on_progress(start + len(group), len(rows))
    return {
        "kind": "codes",
        "subject": subject.name,
        "library": subject.model.library,
        "samples": samples,
        "regions": [_described(row) for row in rows],
        "skipped": [{"reason": reason, "count": count} for reason, count in skipped.most_common()],
        "notes": list(subject.notes),
        "passed": all(row.is_equal for row in rows),
    }


def show_codes(data: Mapping[str, Any], *, every: bool = False) -> None:
    """The regions as a table, those that differ first, ending with PASSED or FAILED."""
    rows = sorted(data["regions"], key=lambda row: (row["is_equal"], -row["differ"]))
    kept = rows if every else rows[:SHOWN]
    cells = [
        (
            row["op_type"],
            row["name"],
            str(row["codes"]),
            str(row["differ"]),
            str(row["at_midpoint"]),
            str(row["rounded_bias"]),
            "ok" if row["is_equal"] else f"FAILED, by {row['largest']}",
        )
        for row in kept
    ]
    show(heading(f"{data['subject']}: codes against the reference, {data['samples']} samples"))
    columns = ("operator", "region", "codes", "differ", "at a midpoint", "rounded bias", "")
    show(table(columns, cells, left=("operator", ""), fold=("region",)))
    if len(kept) < len(rows):
        show(f"and {len(rows) - len(kept)} more: --all shows every region")
    show(*(f"not compared, {row['count']}: {row['reason']}" for row in data["skipped"]))
    show(*(f"note: {note}" for note in data["notes"]))
    codes, differ = (sum(row[key] for row in data["regions"]) for key in ("codes", "differ"))
    near, biases = (sum(row[key] for row in data["regions"]) for key in ("at_midpoint", "rounded_bias"))
    text = (
        f"{len(rows)} regions, {codes} codes: {differ} differ, {near} of them at a midpoint of float32, "
        f"{biases} by a rounded bias"
    )
    show("", verdict(data["passed"], text))


def _described(row: RegionCodes) -> dict[str, Any]:
    return {
        "name": row.region.name,
        "op_type": row.region.op_type,
        "output": row.region.output,
        "nodes": [node.name for node in row.region.nodes],
        "codes": row.codes,
        "differ": row.differ,
        "at_midpoint": row.at_midpoint,
        "rounded_bias": row.rounded_bias,
        "largest": row.largest,
        "is_equal": row.is_equal,
    }


def code_regions(graph: ir.Model, library: str, shown: Mapping[str, str]) -> Iterator[CodeRegion | Skipped]:
    """The regions of an engine's graph, by what the engine shows of them.

    Args:
        library: that runs it; an engine for a GPU stores codes in buffers of their own, and floats too.
        shown: the tensors that it can hand out.
    """
    inputs = {value.name for value in graph.graph.inputs}
    if library == "cuda":
        yield from find_regions(
            graph.graph,
            lambda node: _buffer(node, shown),
            lambda value: value.name if value.name in shown or value.name in inputs else None,
        )
        return
    yield from find_regions(
        graph.graph,
        lambda node: node.outputs[0].name if node.outputs[0].name in shown else None,
        lambda value: value.name if value.name in inputs else None,
    )


def add_samples(
    rows: Sequence[RegionCodes],
    run: Run,
    dataset: Dataset,
    config: CompareConfig,
    *,
    opset: int,
    library: str,
) -> int:
    """Add all samples to some regions; how many there were.

    Args:
        run: the engine, with everything that the regions read and make among its outputs.
        library: that runs it.

    Raises:
        ModelError: a node cannot be computed.
        DataError: there are no samples.
    """
    samples = 0
    for batch in dataset.batches(config.batch_size, config.max_samples or SAMPLES):
        shown = {**batch.inputs, **run(batch.inputs)}
        for row in rows:
            _add(row, shown, opset, rounds_bias=library == "onnxruntime")
        samples += batch.count
    if not samples:
        raise DataError(f"cannot compare on '{dataset.source}': it has no samples")
    return samples


def _graph_of(reference: Subject, subject: Subject, model: LibraryModel) -> ir.Model:
    """The graph that says what the engine's codes are.

    Args:
        model: what the engine shows its codes of.
    """
    library = subject.model.library
    if library == "openvino":
        raise UsageError(
            f"'{subject.name}' shows no codes: OpenVINO keeps them inside its kernels",
            hint="--layers, which holds its floats against the fake-quantized model's",
        )
    if library == "cuda":
        return fake_graph_of(float_model_of(reference, subject), subject)
    graph = library_graph(model)
    lift_constants(graph)
    spell_contrib(graph)
    spell_integer_operators(graph)
    return graph


def _buffer(node: ir.Node, shown: Mapping[str, str]) -> str | None:
    """The buffer of a program that holds the codes of a QuantizeLinear."""
    x = node.inputs[0]
    name = None if x is None else codes_of(x.name or "")
    return name if name in shown else None


def _read(rows: Sequence[RegionCodes], inputs: Collection[str]) -> list[str]:
    """What an engine has to hand out for some regions."""
    names = (
        name
        for row in rows
        for name in (row.region.output, *row.region.codes.values(), *row.region.floats.values())
    )
    return [name for name in dict.fromkeys(names) if name not in inputs]


def _add(row: RegionCodes, shown: Mapping[str, np.ndarray], opset: int, *, rounds_bias: bool) -> None:
    region = row.region
    given = {value: shown[name] for value, name in (region.codes | region.floats).items()}
    row.add(
        shown[region.output],
        expected_codes(region, given, opset),
        (lambda: expected_codes(region, given, opset, rounds_bias=True)) if rounds_bias else None,
    )
