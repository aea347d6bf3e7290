# SPDX-License-Identifier: Apache-2.0
"""The report of one engine, or of two side by side: data, tables for data frames, and one HTML file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quantrt.calibrate.dataset import random_dataset
from quantrt.config import LayerTimingConfig
from quantrt.device import describe_device
from quantrt.errors import DeviceError, UsageError
from quantrt.ir.atomic import replace_file
from quantrt.notebook import rich_table, table_html
from quantrt.plan.plan import Plan
from quantrt.report.built.chosen_shapes import chosen_shapes
from quantrt.report.built.text import most_text
from quantrt.report.engine_layers.graph import align_layers
from quantrt.report.engine_layers.layer import EngineLayer
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.report.engine_layers.same_model import check_same_model
from quantrt.report.explain.cpu_peaks import find_cpu_peaks
from quantrt.report.explain.peaks import gpu_peaks
from quantrt.report.page.engine_view import Measured, engine_view, flat_layers, layers_of_plan
from quantrt.report.page.html_page import html_page
from quantrt.report.quantities import bytes_text, ms_text
from quantrt.runtime.engine import Engine
from quantrt.runtime.layer_times import time_layers
from quantrt.runtime.machine import describe_machine
from quantrt.runtime.notes import engine_notes
from quantrt.version import __version__

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Report", "Source", "Subject", "make_report", "report_subjects"]

log = logging.getLogger(__name__)

REPORT_VERSION = 1

WHOLE_ASPECT, HALF_ASPECT = 1.9, 0.9
"""Width over height of a graph that has the page to itself, and of one of two."""

Inputs = Mapping[str, np.ndarray]
Source = Engine | Plan


class Report:
    """What is known of one engine, or of two.

    Attributes:
        data: everything that the page shows, JSON-ready.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

    @property
    def layers(self) -> list[dict[str, Any]]:
        """A flat row per layer, ready for `pandas.DataFrame`; with two engines, told apart by "engine"."""
        return [row for view in self.data["engines"] for row in flat_layers(view)]

    @property
    def candidates(self) -> list[dict[str, Any]]:
        """A flat row for each way to run the model that was tried when the engine was built."""
        return [row for view in self.data["engines"] for row in _candidate_rows(view)]

    @property
    def tensors(self) -> list[dict[str, Any]]:
        """A flat row per quantized activation: its grid, what calibration saw, and what the grid loses."""
        return [
            {"engine": view["name"], **{key: value for key, value in row.items() if key != "bins"}}
            for view in self.data["engines"]
            for row in view["tensors"]
        ]

    def html(self) -> str:
        """One page with everything in it: it loads nothing from anywhere."""
        return html_page(self.data)

    def save(self, path: Path | str) -> None:
        """Write the page, wholly or not at all.

        Raises:
            DeviceError: the path cannot be written or the disk is full.
        """
        with replace_file(Path(path)) as file:
            file.write(self.html().encode(errors="backslashreplace"))

    def __repr__(self) -> str:
        names = " and ".join(f"{view['name']} ({view['precision']})" for view in self.data["engines"])
        return f"<Report of {names}: {len(self.layers)} layers>"

    def __rich__(self) -> Table:
        return rich_table(*self._summary())

    def _repr_html_(self) -> str:
        return table_html(*self._summary())

    def _summary(self) -> tuple[str, list[str], list[list[str]]]:
        """A column per engine."""
        views = self.data["engines"]
        facts = [_facts(view) for view in views]
        rows = [[name, *(fact[name] for fact in facts)] for name in facts[0]]
        return "report", ["", *(str(view["name"]) for view in views)], rows


@dataclass(frozen=True)
class Subject:
    """One engine of a report.

    Attributes:
        source: an opened engine, whose layers are timed, or a plan.
        name: what it is called on the page.
        file_bytes: of its file; None for an engine that was not saved.
        why_not: why its layers are not timed, one phrase; empty where they are.
    """

    source: Source
    name: str
    file_bytes: int | None = None
    why_not: str = ""

    @property
    def plan(self) -> Plan:
        """What the engine consists of."""
        return self.source.plan if isinstance(self.source, Engine) else self.source


def make_report(
    engine: Source,
    other: Source | None = None,
    *,
    inputs: Inputs | None = None,
    run: bool = True,
    config: LayerTimingConfig | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> Report:
    """Report on an engine, or on two beside each other.

    Args:
        engine, other: opened engines, whose layers are timed; a plan is described without being run.
        inputs: of one run; None for random values, free sizes at 1.
        run: whether layers are timed on this machine.
        config: how often they are run.
        on_progress: called with engines done and their number.

    Raises:
        UsageError: the engines were made of different models, or one is no engine.
        DataError: the inputs do not suit an engine.
        DeviceError: the layers of an engine were to be timed, and its library fails.
    """
    subjects = []
    for source in (engine,) if other is None else (engine, other):
        if not isinstance(source, Engine | Plan):
            raise UsageError(
                "cannot report on what is no engine",
                got=f"{type(source).__name__} {str(source)[:80]}",
                expected="an Engine, or the Plan of one",
                hint="`quantrt.load(path)`",
            )
        is_open = isinstance(source, Engine)
        name = source.name if isinstance(source, Engine) else "engine"
        why_not = "the engine was not opened" if not is_open else "" if run else "it was not to be run"
        subjects.append(Subject(source, name, why_not=why_not))
    inputs_are = "random values" if inputs is None else "the given inputs"
    return report_subjects(subjects, inputs, inputs_are, config or LayerTimingConfig(), on_progress)


def report_subjects(
    subjects: Sequence[Subject],
    inputs: Inputs | None,
    inputs_are: str,
    config: LayerTimingConfig,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> Report:
    """As `make_report`, for one or two engines with names of their own.

    Args:
        inputs_are: what the inputs are called on the page.

    Raises:
        UsageError: two engines were made of different models.
    """
    for subject in subjects[1:]:
        check_same_model(subjects[0].plan, subjects[0].name, subject.plan, subject.name)
    emit = on_progress or (lambda done, total: None)
    views: list[dict[str, Any]] = []
    described: list[tuple[EngineLayer, ...]] = []
    for index, subject in enumerate(subjects):
        emit(index, len(subjects))
        measured = _measure(subject, inputs, inputs_are, config)
        layers, layer_notes = _layers(subject.source, inputs)
        described.append(layers)
        view = engine_view(
            subject.plan,
            layers,
            measured,
            name=subject.name,
            file_bytes=subject.file_bytes,
            notes=(*_notes(subject.source), *layer_notes),
            graph_aspect=WHOLE_ASPECT if len(subjects) == 1 else HALF_ASPECT,
        )
        views.append(view)
    emit(len(subjects), len(subjects))
    aligned = align_layers(*described) if len(subjects) > 1 else ()
    rows = [[list(row.names), list(row.left), list(row.right)] for row in aligned]
    return Report({"version": REPORT_VERSION, "quantrt": __version__, "engines": views, "aligned": rows})


def _measure(subject: Subject, inputs: Inputs | None, inputs_are: str, config: LayerTimingConfig) -> Measured:
    """Times of the layers, where the engine is open and may run."""
    engine, is_gpu = subject.source, subject.plan.model.library == "cuda"
    peaks = gpu_peaks(subject.plan.device) if is_gpu else None
    if subject.why_not or not isinstance(engine, Engine):
        why_not = subject.why_not or "the engine was not opened"
        return Measured(None, describe_device(), why_not=why_not, peaks=peaks)
    if not is_gpu:
        peaks, why_none = find_cpu_peaks(subject.plan)
        if why_none:
            log.warning("%s", why_none)
    given = _best_inputs(engine) if inputs is None else inputs
    times = time_layers(engine, given, runs=config.layer_runs, warmup_runs=config.warmup_runs)
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in given.items())
    here = describe_machine(engine.plan.model.library)
    return Measured(times, here, inputs=f"{inputs_are}, {shapes}", peaks=peaks)


def _best_inputs(engine: Engine) -> dict[str, np.ndarray]:
    """Random values in the shapes that its build timed; of an engine that was not timed a batch of one."""
    shapes = chosen_shapes(engine.plan)
    specs = [replace(spec, shape=shapes.get(spec.name, spec.shape)) for spec in engine.inputs]
    return next(iter(random_dataset(specs, 1, 0).batches(1, 1))).inputs


def _layers(source: Source, inputs: Inputs | None) -> tuple[tuple[EngineLayer, ...], tuple[str, ...]]:
    """What the library runs; where it is not installed, the model's nodes, and a note that they are."""
    plan = source.plan if isinstance(source, Engine) else source
    if isinstance(source, Engine) or plan.model.library != "cuda":
        shapes = None if inputs is None else {name: array.shape for name, array in inputs.items()}
    else:  # not run: the times are those of the build, and so are the shapes
        shapes = None
    try:
        return engine_layers(source, shapes=shapes), ()
    except DeviceError as error:
        note = f"{error.message}: the layers are the model's nodes, and not what the library makes of them"
        return layers_of_plan(plan), (note,)


def _notes(source: Source) -> tuple[str, ...]:
    if isinstance(source, Engine):
        return tuple(source.notes)
    return tuple(engine_notes(source, describe_device(with_gpu=source.model.library == "cuda")))


def _candidate_rows(view: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Candidates of one build, without what is nested."""
    rows = []
    for row in view["build"].get("candidates", ()):
        latency, accuracy = row.get("latency") or {}, row.get("accuracy") or {}
        pair = row.get("against_float") or {}
        rows.append(
            {
                "engine": view["name"],
                "name": row["name"],
                "status": row["status"],
                "reason": row["reason"],
                "size_bytes": row.get("size_bytes"),
                **{f"{key}_ms": latency.get(f"{key}_ms") for key in ("median", "p95", "p99")},
                "speedup_ratio": 1 / pair["ratio"] if pair.get("ratio") else None,
                "drop_ratio": accuracy.get("drop_ratio"),
                "samples": accuracy.get("samples"),
                "float_samples": accuracy.get("float_samples"),
                "sqnr_db": accuracy.get("sqnr_db"),
            }
        )
    return rows


def _facts(view: Mapping[str, Any]) -> dict[str, str]:
    """What a small table says of one engine."""
    shipped = next((row for row in _candidate_rows(view) if row["status"] == "shipped"), None) or {}
    latency, speedup, drop = (shipped.get(key) for key in ("median_ms", "speedup_ratio", "drop_ratio"))
    size = view["file_bytes"] or view["model_bytes"]
    return {
        "precision": f"{view['precision']} on {view['library']}",
        "latency at the build": "not timed" if latency is None else f"{ms_text(latency)} ms",
        "against FP32": "" if speedup is None else f"{speedup:.2f}x",
        "accuracy drop": "not checked" if drop is None else f"{most_text(shipped)}{drop:.4f}",
        "size": bytes_text(size),
        "layers": ", ".join(f"{count} {name}" for name, count in view["node_counts"].items()),
        "timed here": view["measured"]["why_not"] or f"{view['measured']['runs']} runs",
    }
