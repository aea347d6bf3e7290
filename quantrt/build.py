# SPDX-License-Identifier: Apache-2.0
"""The pipeline: one call per stage, in order. This file is the table of contents of QuantRT.

load -> calibrate -> fit (place, choose ranges, correct biases) -> open candidates -> time
     -> choose inside the budget -> plan -> engine
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from quantrt.assign.choose_candidate import choose_candidate
from quantrt.calibrate.caches.trt_cache import TrtCache
from quantrt.calibrate.dataset import Dataset
from quantrt.calibrate.stats import Stats
from quantrt.checks import make_checker, make_size_checker
from quantrt.config import Budget, BuildConfig
from quantrt.constrain.constraints import Constraints, keep_rules
from quantrt.device import describe_device
from quantrt.ir.kept_file import check_kept
from quantrt.mix.coded_attention import keep_attention_float, told_attention
from quantrt.mix.contest import Contest, remembered
from quantrt.mix.late import open_late
from quantrt.mix.measure import check_tables
from quantrt.mix.mixer import Mixed, add_mixed
from quantrt.mix.overflow import mend_overflows
from quantrt.model.load import Source
from quantrt.opening import make_opener, open_candidates
from quantrt.option_checks import check_type
from quantrt.plan.plan import Plan
from quantrt.prepare import (
    Event,
    Job,
    OnEvent,
)
from quantrt.quantized_job import Data, QuantizedJob, quantized_job
from quantrt.report.built.candidate_times import candidate_times, told_candidates
from quantrt.report.built.chosen_shapes import shape_rows
from quantrt.report.built.facts import BuildFacts
from quantrt.report.built.layer_rows import layer_rows
from quantrt.report.built.report import build_report
from quantrt.runtime.engine import Engine
from quantrt.runtime.executor import check_library
from quantrt.runtime.machine import describe_machine
from quantrt.tactics.candidates import (
    Candidate,
)
from quantrt.tactics.time_candidates import time_candidates
from quantrt.tactics.timing import Latency
from quantrt.yardstick import kept_floats, open_floats

__all__ = [
    "Event",
    "OnEvent",
    "build",
    "constrained",
    "make_plan",
]

log = logging.getLogger(__name__)


def build(
    model: Source,
    *,
    config: BuildConfig | None = None,
    device: str | None = None,
    precisions: str | Iterable[str] | None = None,
    budget: Budget | None = None,
    calibration: Data | None = None,
    validation: Data | None = None,
    stats: Stats | None = None,
    calibration_cache: TrtCache | str | Path | None = None,
    on_event: OnEvent | None = None,
) -> Engine:
    """Make a verified engine of a float ONNX model for this machine.

    The engine is the fastest candidate whose accuracy is inside the budget; FP32 unless another is surely
    faster. Its report says what was tried and why it was or was not taken.

    Args:
        model: path of an ONNX file, or a model in memory: an onnx.ModelProto or onnx_ir.Model.
        config: all options; `device`, `precisions` and `budget` replace its parts.
        precisions: any of "fp32", "bf16", "int8", on a GPU also "fp16" and "fp8"; FP32 is always a candidate,
            or known to have lost: see quantrt.yardstick.
        calibration: samples that show the usual range of activations; needed for int8 and fp8 without
            `stats`. A path; a dict of arrays [samples, ...]; an iterable of dicts of arrays, each a sample or
            a batch; or a function without arguments that gives one. Read more than once: no generator.
        validation: samples likewise, with labels for top1 (an array "labels"), on which the accuracy drop is
            measured. Without them it is measured as cosine on calibration samples.
        stats: result of an earlier calibration of the same model.
        calibration_cache: scales of a TensorRT calibration cache, kept bit for bit. What it leaves out stays
            float, or is observed on `calibration` samples or taken from `stats` where these are given.
        on_event: called as stages go on.

    Raises:
        UsageError: int8 or fp8 without calibration data, an unknown metric or layer name, or a metric fails.
        ModelError, DataError, DeviceError: the model, data or the cache, a library or the GPU is at fault.
    """
    merged = _merged(config or BuildConfig(), device, precisions, budget)
    check_tables(merged.assign.tables)
    ready = quantized_job(
        model,
        merged,
        _describe_device(merged),
        calibration=calibration,
        validation=validation,
        stats=stats,
        calibration_cache=calibration_cache,
        on_event=on_event,
    )
    facts = constrained(_decide(ready), ready.constraints)
    log.info("%s", facts.choice.reason)
    path = facts.model.path
    return Engine(make_plan(facts), name=path.stem if path else "engine")


def constrained(facts: BuildFacts, constraints: Constraints) -> BuildFacts:
    """The facts, with a note for every rule that the engine does not keep.

    Raises:
        UsageError: there is one, and none may be broken.
    """
    winner = facts.candidates[facts.choice.winner]
    broken = keep_rules(constraints, facts.config, winner, layer_rows(facts))
    return replace(facts, notes=(*facts.notes, *broken))


def _told_data(data: Dataset | None, inputs: Mapping[str, np.ndarray]) -> Iterator[str]:
    """What the figures of a build without data are of."""
    if data is not None:
        return
    shapes = (f"{name} {'x'.join(map(str, array.shape)) or 'scalar'}" for name, array in inputs.items())
    yield f"there are no data: timed on random values, {', '.join(shapes)}"


def _describe_device(config: BuildConfig) -> dict[str, Any]:
    """Facts of this machine; fails before anything takes time when its GPU is asked for and there is none."""
    if config.device.device != "cuda":
        return describe_device()
    check_library("cuda", compiles=True)
    check_kept(config.cuda.timing_cache)
    return describe_machine("cuda")


def _merged(
    config: BuildConfig, device: str | None, precisions: str | Iterable[str] | None, budget: Budget | None
) -> BuildConfig:
    check_type("config", config, BuildConfig)
    if device is not None:
        config = replace(config, device=replace(config.device, device=device))
    if precisions is not None:
        names = {precisions} if isinstance(precisions, str) else set(precisions)
        config = replace(config, precisions=frozenset(names | {"fp32"}))
    return config if budget is None else replace(config, budget=budget)


def _decide(ready: QuantizedJob) -> BuildFacts:
    """Open, time and check the candidates, and choose one; all are closed again."""
    job, quantized, inputs = ready.job, ready.quantized, ready.timed_inputs
    samples = quantized.samples or ready.truth
    with ExitStack() as stack:
        stack.enter_context(_memory_limit(job.config))
        opener = stack.enter_context(closing(make_opener(job, quantized, inputs)))
        kept = kept_floats(job, quantized, ready.truth, inputs, opener)
        candidates, rejected = open_candidates(job, quantized.fits, opener, stack, kept.load())
        check = remembered(make_checker(candidates, ready.metric, ready.checked, job, stack), candidates)
        floats = partial(open_floats, candidates, opener, stack)
        size_check = make_size_checker(job, candidates, samples, opener.environment, floats)

        def held(names: Iterable[str]) -> Contest:
            left: dict[str, Latency] = {}
            latencies = _time(job, {name: candidates[name] for name in names}, inputs, left)
            choice = choose_candidate(candidates, latencies, check, job.config.budget, size_check)
            return Contest(candidates, latencies, choice, check, inputs, opener, left)

        contest = held(candidates)
        kept.keep(candidates, contest.latencies, opener)
        late = partial(open_late, rejected=rejected, fits=quantized.fits)
        for mend in (partial(mend_overflows, checked=ready.checked), keep_attention_float, late):
            mended = mend(job, contest)
            for name in mended:
                stack.callback(candidates[name].executor.close)
            if mended:
                contest = held(dict.fromkeys((*contest.latencies, *mended)))
        mixed = add_mixed(job, contest, samples)
        if mixed.name is not None:
            stack.callback(candidates[mixed.name].executor.close)
            first = dict.fromkeys((contest.choice.winner, contest.choice.baseline, *mixed.beside, mixed.name))
            contest = held(first).with_others(contest)
        memory = {name: candidate.memory_report() for name, candidate in candidates.items()}
        layer_times = _layer_times(job, contest, mixed)
    still_rejected = tuple(item for item in rejected if item.spec.name not in candidates)
    facts = ready.facts(candidates, still_rejected, contest.choice)
    return replace(
        facts,
        latencies=contest.latencies,
        timed_shapes=shape_rows(inputs),
        memory=memory,
        mixed=mixed.report,
        layer_times=layer_times,
        notes=(*facts.notes, *told_attention(candidates), *_told_data(ready.data, inputs)),
    )


def _layer_times(job: Job, contest: Contest, mixed: Mixed) -> dict[str, dict[str, Any]]:
    """What candidates that the report tells of took layer by layer; they are open still."""
    told = told_candidates(contest.candidates, contest.latencies, contest.choice)

    def on_progress(done: int) -> None:
        job.emit(Event("timing layers", done, len(told), "candidates"))

    on_progress(0)
    return candidate_times(
        {name: contest.candidates[name] for name in told},
        job.model,
        contest.inputs,
        on_progress,
        watched=mixed.watched,
    )


def _memory_limit(config: BuildConfig) -> AbstractContextManager[None]:
    """What bounds the memory of the GPU that all candidates take together."""
    if config.cuda.device_memory_mb is None:
        return nullcontext()
    from quantrt.runtime.cuda.device.memory_limit import device_memory_limit  # torch is optional

    return device_memory_limit(config.cuda.device_memory_mb)


def _time(
    job: Job,
    candidates: Mapping[str, Candidate],
    inputs: Mapping[str, np.ndarray],
    left: dict[str, Latency],
) -> dict[str, Latency]:
    """Of the finalists; those of others are added to `left`."""

    def on_progress(done: int, total: int | None) -> None:
        job.emit(Event("timing", done, total, "ms per candidate"))

    on_progress(0, None)
    return time_candidates(candidates, inputs, job.config, on_progress, on_left=left.__setitem__)


def make_plan(facts: BuildFacts) -> Plan:
    """What is shipped, with its report."""
    winner = facts.candidates[facts.choice.winner]
    return Plan(
        model=winner.model,
        options=winner.options,
        inputs=facts.model.inputs,
        outputs=facts.model.outputs,
        precision=winner.spec.precision,
        layers=layer_rows(facts),
        fingerprint=facts.model.fingerprint,
        device=facts.device,
        is_calibrated=not (winner.spec.has_codes and facts.is_random),
        report=build_report(facts),
    )
