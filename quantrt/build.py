# SPDX-License-Identifier: Apache-2.0
"""The pipeline: one call per stage, in order. This file is the table of contents of QuantRT.

load -> calibrate -> fit (place, choose ranges, correct biases) -> open candidates -> time
     -> choose inside the budget -> plan -> engine
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from quantrt.assign.accuracy import Accuracy, Metric, find_metric, measure_accuracy
from quantrt.assign.choose import choose
from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import Batch, Dataset, open_dataset, random_dataset
from quantrt.calibrate.stats import Stats
from quantrt.config import Budget, BuildConfig
from quantrt.device import describe_device
from quantrt.errors import ModelError, UsageError
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.plan.plan import Plan
from quantrt.quantize.fit import FIT_SAMPLES, Fitted, fit, observe_reference
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.target import Target
from quantrt.report.build_report import BuildFacts, build_report, layer_rows
from quantrt.runtime.engine import Engine
from quantrt.runtime.executor import Executor
from quantrt.tactics.candidates import Candidate, Rejected, Spec, int8_target, list_specs, open_candidate
from quantrt.tactics.race import race

__all__ = ["Data", "Event", "build"]

log = logging.getLogger(__name__)

Data = Dataset | str | Path | Iterable[Mapping[str, np.ndarray]] | Mapping[str, np.ndarray]
"""Samples: a path, an array per input, or an iterable of dicts of arrays."""

RANDOM_SAMPLES = 32
"""Samples of --calib-random: their ranges mean nothing, so a few do."""


@dataclass(frozen=True)
class Event:
    """Progress of one stage.

    Attributes:
        stage: "calibrating", "quantizing", "opening", "timing" or "checking".
        done, total: in `unit`; total is None when it is not known.
    """

    stage: str
    done: int
    total: int | None
    unit: str


OnEvent = Callable[[Event], None]


def build(
    model: str | Path | Model,
    *,
    config: BuildConfig | None = None,
    device: str | None = None,
    precisions: Iterable[str] | None = None,
    budget: Budget | None = None,
    calibration: Data | None = None,
    validation: Data | None = None,
    stats: Stats | None = None,
    on_event: OnEvent | None = None,
) -> Engine:
    """Make a verified engine of a float ONNX model for this machine.

    The engine is the fastest candidate whose accuracy is inside the budget; FP32 unless another is surely
    faster. Its report says what was tried and why it was or was not taken.

    Args:
        model: path of an ONNX file, or a loaded model.
        config: all options; `device`, `precisions` and `budget` replace its parts.
        precisions: any of "fp32", "bf16", "int8"; FP32 is always a candidate.
        calibration: samples that show the usual range of activations; needed for int8 unless `stats` is given.
        validation: samples, with labels for top1, on which the accuracy drop is measured. Without them it is
            measured as cosine on calibration samples.
        stats: result of an earlier calibration of the same model.
        on_event: called as stages go on.

    Raises:
        UsageError: int8 without calibration data, an unknown metric or layer name.
        ModelError, DataError: the model or the data cannot be used.
        DeviceError: a library is missing.
    """
    config = _merged(config or BuildConfig(), device, precisions, budget)
    emit = on_event or (lambda event: None)
    model = model if isinstance(model, Model) else load_model(model)
    here = describe_device()
    specs = list_specs(config, here)
    samples = _open(calibration, model)
    truth = _open(validation, model)
    metric = find_metric(config.budget.metric, has_labels=_has_labels(truth))
    fits: dict[str, Fitted] = {}
    if "int8" in config.precisions:
        targets = {spec.library: int8_target(spec.library, here) for spec in specs}
        samples = _calibration_samples(samples, stats, model, config)
        stats = stats or _calibrate(model, targets, samples, config, emit)
        fits = _fit(model, stats, targets, samples, config, emit)
    candidates, rejected = _open_candidates(specs, model, fits, config, emit)
    inputs = _timed_inputs(truth or samples, model, config)
    latencies = race(
        {name: _runner(candidate.executor, inputs) for name, candidate in candidates.items()},
        {name for name, candidate in candidates.items() if candidate.spec.precision == "fp32"},
        config.bench,
        lambda done, total: emit(Event("timing", done, total, "ms per candidate")),
    )
    check = _checker(candidates, metric, truth or (None if stats and stats.is_random else samples), emit)
    choice = choose(
        latencies,
        {name: candidates[name].spec.precision == "fp32" for name in latencies},
        check,
        config.budget.max_drop_ratio,
    )
    facts = BuildFacts(model, config, here, stats, truth is not None, candidates, rejected, latencies, choice)
    plan = _plan(facts)
    for candidate in candidates.values():
        candidate.executor.close()
    log.info("%s", choice.reason)
    return Engine(plan, name=model.path.stem if model.path else "engine")


def _merged(
    config: BuildConfig, device: str | None, precisions: Iterable[str] | None, budget: Budget | None
) -> BuildConfig:
    if device is not None:
        config = replace(config, device=replace(config.device, device=device))
    if precisions is not None:
        config = replace(config, precisions=frozenset(precisions) | {"fp32"})
    return config if budget is None else replace(config, budget=budget)


def _open(data: Data | None, model: Model) -> Dataset | None:
    if data is None or isinstance(data, Dataset):
        return data
    return open_dataset(data, model.inputs)


def _has_labels(dataset: Dataset | None) -> bool:
    return dataset is not None and bool(next(iter(dataset.batches(1, 1))).labels)


def _calibration_samples(
    samples: Dataset | None, stats: Stats | None, model: Model, config: BuildConfig
) -> Dataset | None:
    """The data to calibrate on; random only when asked for."""
    if samples is None and stats is None and config.calibration.calib_random:
        count = config.calibration.max_samples or RANDOM_SAMPLES
        return random_dataset(model.inputs, count, config.calibration.seed)
    if samples is None and stats is None:
        raise UsageError(
            "cannot build an int8 engine without calibration",
            expected="calibration data, or ranges of an earlier calibration",
            hint="calibration=..., stats=..., or CalibrationConfig(calib_random=True) to measure speed only",
        )
    return samples


def _calibrate(
    model: Model, targets: Mapping[str, Target], samples: Dataset | None, config: BuildConfig, emit: OnEvent
) -> Stats:
    """One pass over the data for all targets together."""
    if samples is None:
        raise UsageError("cannot calibrate without data")
    names = observed_values(model, tuple(targets.values()), config.quantize)
    return collect(
        model,
        names,
        samples,
        config.calibration,
        on_progress=lambda done, total: emit(Event("calibrating", done, total, "samples")),
    )


def _fit(
    model: Model,
    stats: Stats,
    targets: Mapping[str, Target],
    samples: Dataset | None,
    config: BuildConfig,
    emit: OnEvent,
) -> dict[str, Fitted]:
    """A quantized model per library."""
    limit = min(FIT_SAMPLES, config.calibration.max_samples or FIT_SAMPLES)
    batches = [batch.inputs for batch in samples.batches(8, limit)] if samples is not None else []
    reference = observe_reference(model, batches, config.quantize)
    fits: dict[str, Fitted] = {}
    for done, (library, target) in enumerate(targets.items()):
        emit(Event("quantizing", done, len(targets), "targets"))
        fits[library] = fit(
            model, stats, target, reference, config=config.quantize, calibration=config.calibration
        )
    emit(Event("quantizing", len(targets), len(targets), "targets"))
    return fits


def _open_candidates(
    specs: Sequence[Spec], model: Model, fits: Mapping[str, Fitted], config: BuildConfig, emit: OnEvent
) -> tuple[dict[str, Candidate], tuple[Rejected, ...]]:
    """Every spec that its library can run; an error only when FP32 runs nowhere."""
    opened: dict[str, Candidate] = {}
    rejected: list[Rejected] = []
    outputs = [spec.name for spec in model.outputs]
    for done, spec in enumerate(specs):
        emit(Event("opening", done, len(specs), "candidates"))
        fitted = fits[spec.library] if spec.precision == "int8" else None
        found = open_candidate(spec, model.graph, fitted, config, outputs)
        if isinstance(found, Rejected):
            rejected.append(found)
        else:
            opened[spec.name] = found
    emit(Event("opening", len(specs), len(specs), "candidates"))
    if not any(candidate.spec.precision == "fp32" for candidate in opened.values()):
        reasons = "; ".join(f"{item.spec.name}: {item.reason}" for item in rejected)
        raise ModelError("no library can run this model in FP32", got=reasons)
    return opened, tuple(rejected)


def _timed_inputs(data: Dataset | None, model: Model, config: BuildConfig) -> dict[str, np.ndarray]:
    """One batch of real samples, repeated to the batch size; random values where there is no data."""
    batch_size = config.bench.batch or 1
    if data is None:
        data = random_dataset(model.inputs, batch_size, 0)
    batch = next(iter(data.batches(batch_size, batch_size)))
    if batch.count >= batch_size or not data.layout.is_batched or data.layout.fixed_batch:
        return batch.inputs
    rows = np.resize(np.arange(batch.count), batch_size)
    return {name: array[rows] for name, array in batch.inputs.items()}


def _runner(executor: Executor, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
    return lambda: executor.run(inputs)


def _checker(
    candidates: Mapping[str, Candidate], metric: Metric, data: Dataset | None, emit: OnEvent
) -> Callable[[str], Accuracy | None]:
    """Measures one candidate against the FP32 candidate that opened first."""
    reference = next(c.executor for c in candidates.values() if c.spec.precision == "fp32")

    def check(name: str) -> Accuracy | None:
        if data is None:
            return None
        batches = _counted(data, emit)
        return measure_accuracy(metric, batches, reference.run, candidates[name].executor.run)

    return check


def _counted(data: Dataset, emit: OnEvent) -> Iterable[Batch]:
    for batch in data.batches(8):
        yield batch
        emit(Event("checking", batch.first_sample + batch.count, data.sample_count, "samples"))


def _plan(facts: BuildFacts) -> Plan:
    """What is shipped, with its report."""
    winner = facts.candidates[facts.choice.winner]
    is_int8 = winner.spec.precision == "int8"
    return Plan(
        model=winner.model,
        options=winner.options,
        inputs=facts.model.inputs,
        outputs=facts.model.outputs,
        precision=winner.spec.precision,
        layers=layer_rows(facts),
        fingerprint=facts.model.fingerprint,
        device=facts.device,
        is_calibrated=not (is_int8 and facts.stats is not None and facts.stats.is_random),
        report=build_report(facts),
    )
