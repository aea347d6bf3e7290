# SPDX-License-Identifier: Apache-2.0
"""A build up to its decision: model loaded and laid out, ranges taken, what is wanted in codes made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from quantrt.assign.accuracy.checked import Checked
from quantrt.assign.accuracy.metric import Metric
from quantrt.assign.choose import Choice
from quantrt.bind import bind_floats, bind_stored, laid_out_data, laid_out_stats, lay_out, read_edges
from quantrt.calibrate.caches.trt_cache import TrtCache
from quantrt.calibrate.dataset import Dataset, open_dataset
from quantrt.calibrate.stats import Stats
from quantrt.calibrate.usual_sizes import made_up_data
from quantrt.checks import tried_metric
from quantrt.config import BuildConfig
from quantrt.constrain.constraints import Constraints, read_constraints
from quantrt.errors import UsageError
from quantrt.ir.profile import read_profiles
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import Source, load_model
from quantrt.model.model import Model
from quantrt.prepare import (
    Job,
    OnEvent,
    Quantized,
    open_cache,
    quantize_for_device,
    quantize_weights_alone,
)
from quantrt.quantize.explicit.read import target_of_own
from quantrt.quantize.fit.fit import keeps_scales
from quantrt.report.built.facts import BuildFacts
from quantrt.runtime.peak_memory import peak_memory
from quantrt.tactics.candidates import Candidate, Rejected, with_bf16
from quantrt.tactics.cuda.padding.zero_padding import zero_padding
from quantrt.tactics.time_candidates import timed_inputs

__all__ = ["Data", "QuantizedJob", "open_data", "quantized_job"]

Samples = Iterable[Mapping[str, np.ndarray]]
Data = Dataset | str | Path | Samples | Callable[[], Samples] | Mapping[str, np.ndarray]
"""Samples: a path, an array per input, an iterable of dicts of arrays, or a function that gives one."""


@dataclass(frozen=True)
class QuantizedJob:
    """What is left is to choose among candidates.

    Attributes:
        truth: validation data, if there are any.
        metric: of the budget.
        constraints: what single layers have to be.
    """

    job: Job
    quantized: Quantized
    truth: Dataset | None
    metric: Metric
    constraints: Constraints

    @property
    def data(self) -> Dataset | None:
        """Validation data, or else calibration samples."""
        return self.truth or self.quantized.samples

    @cached_property
    def checked(self) -> Checked:
        """What accuracy is measured on."""
        return Checked.choose(self.truth, self.quantized.samples, self.job.config, self.job.model)

    @cached_property
    def timed_inputs(self) -> dict[str, np.ndarray]:
        """One batch of the data, or of random values without any."""
        model, config = self.job.model, self.job.config
        shown = self.data or made_up_data(model, config.bench.batch or 1, 0)
        return timed_inputs(shown, model.inputs, config.bench.batch, config.cuda.profiles)

    def facts(
        self, candidates: Mapping[str, Candidate], rejected: tuple[Rejected, ...], choice: Choice
    ) -> BuildFacts:
        """What a report tells of a choice, but for times."""
        quantized = self.quantized
        return BuildFacts(
            model=self.job.model,
            config=self.job.config,
            device=self.job.device,
            stats=quantized.stats,
            cache=quantized.cache,
            checked_on=self.checked.name,
            candidates=candidates,
            rejected=rejected,
            latencies={},
            choice=choice,
            int4_nodes=frozenset() if quantized.weight_only is None else quantized.weight_only.nodes,
            peak_memory=peak_memory(),
            notes=(*self.job.model.notes, *quantized.notes),
        )


def quantized_job(
    model: Source,
    config: BuildConfig,
    device: Mapping[str, Any],
    *,
    calibration: Data | None,
    validation: Data | None,
    stats: Stats | None,
    calibration_cache: TrtCache | str | Path | None,
    on_event: OnEvent | None,
) -> QuantizedJob:
    """All that comes before candidates are opened, in order.

    Args:
        device: facts of the machine that engines are for.
        calibration, validation, stats, calibration_cache, on_event: as in `quantrt.build`.

    Raises:
        UsageError, ModelError, DataError: as of `quantrt.build`.
    """
    cache = open_cache(calibration_cache, config)
    given = load_model(model)
    edges = read_edges(given, config)
    model = lay_out(given, edges)
    if config.device.device == "cuda":
        model = zero_padding(for_gpu(model), config.cuda.remove_padding)
    config = _with_brought(model, config, device)
    read_profiles(config.cuda.profiles, model.inputs)  # an error now, not after calibration
    constraints, config = read_constraints(model, config)
    ranged = (*edges.without_scale, *constraints.without_scale)
    job = Job(model, config, device, on_event or (lambda event: None), ranged)
    data = (open_data("calibration", calibration, given), open_data("validation", validation, given))
    samples, truth = (laid_out_data(item, model, edges, config) for item in data)
    metric, _ = tried_metric(config.budget, model, config, samples=samples, truth=truth, emit=job.emit)
    quantized = _quantize(job, samples, laid_out_stats(stats, edges), cache)
    job, quantized, truth = bind_floats(bind_stored(job, quantized, constraints), quantized, truth, edges)
    return QuantizedJob(job, quantized, truth, metric, constraints)


def open_data(what: str, data: Data | None, model: Model) -> Dataset | None:
    """The samples, for a model with these inputs; None when none are given.

    Args:
        what: how to call them in a message, such as "calibration".
    """
    if data is None or isinstance(data, Dataset):
        return data
    if isinstance(data, Iterator):
        raise UsageError(
            f"cannot use a generator as {what} data: they are read more than once",
            expected="a path, a dict of arrays, a list of dicts, or a function that gives them",
            hint=f"`{what}=READER`, the function or class itself, in place of READER()",
        )
    return open_dataset(data, model.inputs)


def _with_brought(model: Model, config: BuildConfig, device: Mapping[str, Any]) -> BuildConfig:
    """With the precisions that those asked for bring: a model's own codes, or bf16 beside int8."""
    if keeps_scales(model, config):
        return replace(config, precisions=config.precisions | {target_of_own(model).precision})
    return with_bf16(config, device)


def _quantize(job: Job, samples: Dataset | None, stats: Stats | None, cache: TrtCache | None) -> Quantized:
    """What config wants in codes, or the data alone."""
    if job.config.code_precisions:
        return quantize_for_device(job, samples, stats, cache)
    if job.config.quantize.weights == "int4":
        return quantize_weights_alone(job, samples)
    return Quantized(samples, stats)
