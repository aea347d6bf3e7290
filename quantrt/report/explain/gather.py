# SPDX-License-Identifier: Apache-2.0
"""All that an explanation of an engine rests on: its layers, their times, and the device's peaks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from quantrt.errors import DataError
from quantrt.plan.plan import Plan
from quantrt.report.built.candidate_times import with_candidates
from quantrt.report.engine_layers.cuda_sizes import timed_shapes
from quantrt.report.engine_layers.layer import is_conversion
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.report.explain.against import Against
from quantrt.report.explain.changes import BATCH_FACTOR, BatchTime
from quantrt.report.explain.cpu_peaks import find_cpu_peaks
from quantrt.report.explain.describe import Evidence
from quantrt.report.explain.peaks import Peaks, gpu_peaks
from quantrt.report.explain.times import TIMING, measured_times, stored_times
from quantrt.runtime.engine import Engine
from quantrt.tactics.timing import time_interleaved

__all__ = ["gather_against", "gather_from_file", "gather_from_runs"]

Inputs = Mapping[str, np.ndarray]


def gather_from_file(plan: Plan, path: Path) -> Evidence:
    """Of an engine for a GPU that is not run: what was measured or estimated when it was built."""
    layers = engine_layers(plan)
    peaks = gpu_peaks(plan.device)
    return Evidence(
        path=str(path),
        file_bytes=path.stat().st_size,
        plan=plan,
        layers=layers,
        times=stored_times(plan, layers),
        peaks=peaks,
        no_peaks="" if peaks is not None else "the peaks of the GPU it was built for are not known",
        shapes=timed_shapes(layers, [spec.name for spec in plan.inputs]),
    )


def gather_from_runs(engine: Engine, path: Path, inputs: Inputs) -> Evidence:
    """Of an engine that can run here: its layers are timed on `inputs`, and a CPU's peaks are measured.

    Raises:
        DataError: an input's name, element type or shape is wrong.
    """
    plan = engine.plan
    shapes = {name: tuple(array.shape) for name, array in inputs.items()}
    layers = with_candidates(plan, engine_layers(plan, shapes=shapes), shapes)
    times, _ = measured_times(engine, inputs)
    peaks, no_peaks = _peaks(plan)
    if peaks is not None:
        peaks = peaks.raised(layers, times.layer_us)
    return Evidence(
        path=str(path),
        file_bytes=path.stat().st_size,
        plan=plan,
        layers=layers,
        times=times,
        peaks=peaks,
        no_peaks=no_peaks,
        shapes=shapes,
        batch=_batch(engine, inputs, times.engine_us),
    )


def gather_against(engine: Engine, path: Path, inputs: Inputs) -> Against:
    """Another engine of the same model, timed on the same inputs."""
    layers = engine_layers(engine, shapes={name: tuple(array.shape) for name, array in inputs.items()})
    times, _ = measured_times(engine, inputs)
    return Against(
        name=str(path),
        precision=engine.precision,
        layers=layers,
        times=times,
        conversions_us=sum(times.layer_us.get(layer.name, 0.0) for layer in layers if is_conversion(layer)),
    )


def _peaks(plan: Plan) -> tuple[Peaks | None, str]:
    """The roofline, or why there is none."""
    if plan.model.library == "cuda":
        peaks = gpu_peaks(plan.device)
        return peaks, "" if peaks is not None else "the peaks of this GPU are not known"
    return find_cpu_peaks(plan)


def _batch(engine: Engine, inputs: Inputs, engine_us: float | None) -> BatchTime | None:
    """The engine with more samples at once; None where its shapes do not allow that."""
    free = [
        spec.shape is not None and spec.shape and not isinstance(spec.shape[0], int) for spec in engine.inputs
    ]
    if not engine_us or not free or not all(free):
        return None
    more = {name: np.repeat(array, BATCH_FACTOR, axis=0) for name, array in inputs.items()}
    now = next(iter(inputs.values())).shape[0]
    try:
        latency = time_interleaved({"engine": engine.executor.prepare(more)}, TIMING)["engine"]
    except DataError:
        return None  # outside the profile, or the model ties its batch to something
    return BatchTime(
        batch=now * BATCH_FACTOR,
        now=now,
        speedup_ratio=BATCH_FACTOR * engine_us / (latency.median_ms * 1e3),
    )
