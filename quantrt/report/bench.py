# SPDX-License-Identifier: Apache-2.0
"""Latency of files that can be run, taken in turns, and their ratios."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from quantrt.config import BenchConfig
from quantrt.device import describe_device
from quantrt.report.device_text import device_line
from quantrt.report.quantities import ms_text, ratio_text
from quantrt.report.subject import Subject
from quantrt.report.tables import heading, show, table
from quantrt.tactics.timing import Latency, Paired, compare_paired, time_interleaved

__all__ = ["measure", "show_bench"]

UNSTABLE_CV_RATIO = 0.10
"""Above this spread a note says that the machine may be busy; 0.02 to 0.05 is usual on an idle one."""


def measure(
    subjects: Sequence[Subject],
    inputs: Sequence[Mapping[str, np.ndarray]],
    config: BenchConfig,
    *,
    batch: int,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> dict[str, Any]:
    """Time every subject on its inputs, interleaved.

    Args:
        batch: samples in each of the inputs.

    Returns:
        JSON-ready facts: a row per subject; for each but the first, its speed against the first.
    """
    runs = {str(i): partial(subject.run, inputs[i]) for i, subject in enumerate(subjects)}
    latencies = list(time_interleaved(runs, config, on_progress).values())
    pairs = [compare_paired(latencies[0], latency) for latency in latencies[1:]]
    return {
        "device": describe_device(with_gpu=False),
        "batch": batch,
        "base": subjects[0].name,
        "files": [_row(*pair, batch) for pair in zip(subjects, latencies, strict=True)],
        "ratios": [_ratio(*pair) for pair in zip(subjects[1:], pairs, strict=True)],
        "notes": [
            *(f"{subject.name}: {note}" for subject in subjects for note in subject.notes),
            *(
                f"{subject.name}: latencies vary by {latency.cv_ratio:.0%}; is the machine busy?"
                for subject, latency in zip(subjects, latencies, strict=True)
                if latency.cv_ratio > UNSTABLE_CV_RATIO
            ),
        ],
    }


def show_bench(data: Mapping[str, Any]) -> None:
    """The measurements as tables."""
    show(heading(f"latency in ms, batch {data['batch']}, on {device_line(data['device'])}"))
    columns = ("file", "library", "precision", "median", "mean", "p95", "p99", "runs", "samples/s")
    rows = [
        (
            row["file"],
            row["library"],
            row["precision"],
            *(ms_text(row[f"{name}_ms"]) for name in ("median", "mean", "p95", "p99")),
            str(row["runs"]),
            f"{row['samples_per_s']:,.0f}" if row["samples_per_s"] >= 100 else f"{row['samples_per_s']:.1f}",
        )
        for row in data["files"]
    ]
    show(table(columns, rows, left=("library", "precision"), fold=("file",)))
    if data["ratios"]:
        speeds = [
            (
                row["file"],
                ratio_text(row["speedup_ratio"]),
                f"{row['lo']:.3f} .. {row['hi']:.3f}" if row["hi"] is not None else "too few rounds",
                row["verdict"],
            )
            for row in data["ratios"]
        ]
        headers = ("file", f"speed against {data['base']}", "99 % interval", "verdict")
        show("", table(headers, speeds, left=("verdict",), fold=("file",)))
    show(*(f"note: {note}" for note in data["notes"]))


def _row(subject: Subject, latency: Latency, batch: int) -> dict[str, Any]:
    return {
        "file": subject.name,
        "kind": subject.kind,
        "library": subject.model.library,
        "precision": subject.precision,
        "model_bytes": subject.model.size_bytes,
        "median_ms": latency.median_ms,
        "mean_ms": latency.mean_ms,
        "min_ms": latency.min_ms,
        "max_ms": latency.max_ms,
        **{f"p{percent}_ms": latency.p(percent / 100) for percent in (5, 95, 99)},
        "cv_ratio": latency.cv_ratio,
        "runs": len(latency.samples_ms),
        "samples_per_s": batch * 1000 / latency.median_ms,
    }


def _ratio(subject: Subject, pair: Paired) -> dict[str, Any]:
    """The base's time over the subject's: above 1 the subject is faster."""
    is_bounded = np.isfinite(pair.hi)
    words = {"slower": "faster", "faster": "slower", "same": "same"}  # of the base -> of the subject
    return {
        "file": subject.name,
        "speedup_ratio": pair.ratio,
        "lo": pair.lo if is_bounded else None,
        "hi": pair.hi if is_bounded else None,
        "rounds": pair.rounds,
        "verdict": words[pair.verdict],
    }
