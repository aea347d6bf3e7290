# SPDX-License-Identifier: Apache-2.0
"""Latency of files that can be run, taken in turns, and their ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from quantrt.config import BenchConfig
from quantrt.report.device_text import device_line
from quantrt.report.quantities import memory_text, ms_text, ratio_text
from quantrt.report.subject import Subject
from quantrt.report.tables import heading, show, table
from quantrt.runtime.machine import describe_machine
from quantrt.runtime.peak_memory import peak_memory
from quantrt.tactics.timing import Latency, Paired, compare_paired, time_interleaved

__all__ = ["hold_to", "measure", "show_bench", "unsteady_notes"]

UNSTABLE_CV_RATIO = 0.10
"""Above this spread a note says that the machine may be busy; 0.02 to 0.05 is usual on an idle one."""


@dataclass(frozen=True)
class _Timed:
    """One way to run one subject.

    Attributes:
        what: "call", from arrays given to arrays ready, or "replay" of what is on the GPU already.
    """

    subject: Subject
    what: str
    run: Callable[[], object]

    @property
    def name(self) -> str:
        """For notes and ratios."""
        return self.subject.name if self.what == "call" else f"{self.subject.name} ({self.what})"


def measure(
    subjects: Sequence[Subject],
    inputs: Sequence[Mapping[str, np.ndarray]],
    config: BenchConfig,
    *,
    batch: int,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> dict[str, Any]:
    """Time every subject on its inputs, interleaved; an engine for a GPU also without copies to and from it.

    Args:
        batch: samples in each of the inputs.

    Returns:
        JSON-ready facts: a row per subject and way to run it ("timed": "call" or "replay"); for each but the
        first of its way, its speed against the first.
    """
    timed = [item for pair in zip(subjects, inputs, strict=True) for item in _ways(*pair)]
    runs = {str(i): item.run for i, item in enumerate(timed)}
    latencies = list(time_interleaved(runs, config, on_progress).values())
    rows = list(zip(timed, latencies, strict=True))
    return {
        "device": describe_machine("cuda" if _uses_gpu(subjects) else ""),
        "batch": batch,
        "shapes": _free_shapes(subjects[0], inputs[0]),
        "base": subjects[0].name,
        "files": [_row(item, latency, batch) for item, latency in rows],
        "peak_memory": peak_memory(),
        "ratios": [ratio for what in ("call", "replay") for ratio in _ratios(what, rows)],
        "notes": [
            *(f"{subject.name}: {note}" for subject in subjects for note in subject.notes),
            *_other_models(subjects),
            *unsteady_notes((item.name, latency) for item, latency in rows),
        ],
    }


def hold_to(data: Mapping[str, Any], min_speed: float) -> dict[str, Any]:
    """The measurements with "passed", of all and of each ratio: False where one is surely slower than that.

    Args:
        min_speed: the least speed against the first file; 1 is as fast. A ratio whose interval holds it, or
            that has none for want of rounds, passes: noise alone fails nothing.
    """
    ratios = [row | {"passed": row["hi"] is None or row["hi"] >= min_speed} for row in data["ratios"]]
    passed = all(row["passed"] for row in ratios)
    return {**data, "min_speed": min_speed, "ratios": ratios, "passed": passed}


def unsteady_notes(latencies: Iterable[tuple[str, Latency]]) -> tuple[str, ...]:
    """A line for each of these names whose latencies vary so much that they say little."""
    return tuple(
        f"{name}: latencies vary by {latency.cv_ratio:.0%}; is the machine busy?"
        for name, latency in latencies
        if latency.cv_ratio > UNSTABLE_CV_RATIO
    )


def _other_models(subjects: Sequence[Subject]) -> Iterator[str]:
    """Subjects whose ratio says little, for they take other inputs than the first."""
    base, *others = subjects
    wanted = {spec.name for spec in base.inputs}
    for subject in others:
        if {spec.name for spec in subject.inputs} != wanted:
            yield f"{subject.name} takes other inputs than {base.name}: they are different models"


def _free_shapes(subject: Subject, inputs: Mapping[str, np.ndarray]) -> dict[str, list[int]]:
    """The shapes that inputs with more free sizes than the batch were timed at."""
    return {
        spec.name: list(inputs[spec.name].shape)
        for spec in subject.inputs
        if spec.shape is None or any(not isinstance(size, int) for size in spec.shape[1:])
    }


def _ways(subject: Subject, inputs: Mapping[str, np.ndarray]) -> Iterator[_Timed]:
    """Whole calls; on a GPU also replays, whose inputs and outputs stay there."""
    yield _Timed(subject, "call", partial(subject.run, inputs))
    if subject.model.library == "cuda":
        yield _Timed(subject, "replay", subject.prepare(inputs))


def _uses_gpu(subjects: Sequence[Subject]) -> bool:
    return any(subject.model.library == "cuda" for subject in subjects)


def show_bench(data: Mapping[str, Any]) -> None:
    """The measurements as tables."""
    libraries = {"cuda" if row["library"] == "cuda" else "" for row in data["files"]}
    places = " and ".join(device_line(data["device"], library) for library in sorted(libraries))
    show(heading(f"latency in ms, batch {data['batch']}, on {places}"))
    shapes = [f"{name} {'x'.join(map(str, shape))}" for name, shape in data["shapes"].items()]
    show(*([f"inputs: {', '.join(shapes)}"] if shapes else []))
    columns = ("file", "library", "precision", "timed", "median", "mean", "p95", "p99", "runs", "samples/s")
    rows = [
        (
            row["file"],
            row["library"],
            row["precision"],
            row["timed"],
            *(ms_text(row[f"{name}_ms"]) for name in ("median", "mean", "p95", "p99")),
            str(row["runs"]),
            f"{row['samples_per_s']:,.0f}" if row["samples_per_s"] >= 100 else f"{row['samples_per_s']:.1f}",
        )
        for row in data["files"]
    ]
    show(table(columns, rows, left=("library", "precision", "timed"), fold=("file",)))
    if any(row["timed"] == "replay" for row in data["files"]):
        show("call: arrays given to arrays ready; replay: on the GPU alone, without copies to and from it")
    if data["ratios"]:
        speeds = [
            (
                f"{row['file']} ({row['timed']})" if row["timed"] != "call" else row["file"],
                ratio_text(row["speedup_ratio"]),
                f"{row['lo']:.3f} .. {row['hi']:.3f}" if row["hi"] is not None else "too few rounds",
                row["verdict"],
            )
            for row in data["ratios"]
        ]
        headers = ("file", f"speed against {data['base']}", "99 % interval", "verdict")
        show("", table(headers, speeds, left=("verdict",), fold=("file",)))
    show(f"peak memory of this process: {memory_text(data['peak_memory'])}")
    show(*(f"note: {note}" for note in data["notes"]))
    if "passed" in data:
        failed = [row["file"] for row in data["ratios"] if not row["passed"]]
        limit = f"{data['min_speed']:g} times as fast as {data['base']}"
        text = (
            f"FAILED: surely less than {limit}: {', '.join(failed)}"
            if failed
            else f"PASSED: {limit}, or not surely less"
        )
        show("", text)


def _row(item: _Timed, latency: Latency, batch: int) -> dict[str, Any]:
    subject = item.subject
    return {
        "file": subject.name,
        "kind": subject.kind,
        "library": subject.model.library,
        "precision": subject.precision,
        "timed": item.what,
        "model_bytes": subject.model.size_bytes,
        **latency.figures(5, 95, 99),
        "cv_ratio": latency.cv_ratio,
        "runs": len(latency.samples_ms),
        "samples_per_s": batch * 1000 / latency.median_ms,
    }


def _ratios(what: str, rows: Sequence[tuple[_Timed, Latency]]) -> Iterator[dict[str, Any]]:
    """Those that are timed the same way against the first subject, if it can be timed so."""
    base = rows[0][0].subject
    same = [(item, latency) for item, latency in rows if item.what == what]
    if same and same[0][0].subject is base:
        for item, latency in same[1:]:
            yield _ratio(item, compare_paired(same[0][1], latency))


def _ratio(item: _Timed, pair: Paired) -> dict[str, Any]:
    """The base's time over the subject's: above 1 the subject is faster."""
    is_bounded = np.isfinite(pair.hi)
    words = {"slower": "faster", "faster": "slower", "same": "same"}  # of the base -> of the subject
    return {
        "file": item.subject.name,
        "timed": item.what,
        "speedup_ratio": pair.ratio,
        "lo": pair.lo if is_bounded else None,
        "hi": pair.hi if is_bounded else None,
        "rounds": pair.rounds,
        "verdict": words[pair.verdict],
    }
