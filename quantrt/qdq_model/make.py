# SPDX-License-Identifier: Apache-2.0
"""A standard ONNX model with Q/DQ nodes of a float model: ranges, fit, and a budget where there is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx_ir as ir

from quantrt.calibrate.caches.trt_cache import TrtCache, read_cache
from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import Dataset
from quantrt.calibrate.stats import Stats
from quantrt.calibrate.unlike import without_unlike
from quantrt.calibrate.usual_sizes import made_up_data
from quantrt.checks import tried_metric
from quantrt.config import TARGETS, Budget, BuildConfig
from quantrt.errors import ModelError, UsageError
from quantrt.model.file.save import save_model
from quantrt.model.load import Source, load_model
from quantrt.model.model import Model
from quantrt.option_checks import check_choice, check_type
from quantrt.prepare import RANDOM_SAMPLES, Event, OnEvent, check_ranges, observable
from quantrt.qdq_model.file_graph import file_graph, tell_budget
from quantrt.qdq_model.summary import summary, why_outside
from quantrt.qdq_model.within import Outcome, Wanted, keep_within
from quantrt.quantize.cache_match import CacheMatch, match_cache, match_notes
from quantrt.quantize.fit.fit import Fitted, Reference, fit, sample_reference
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.placement.levels import why_level_left_all
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets import target_named
from quantrt.quantized_job import Data, open_data

__all__ = ["QdqModel", "quantize_model"]


@dataclass(frozen=True, repr=False)
class QdqModel:
    """A quantized model that standard ONNX can hold.

    Attributes:
        fitted: the quantized model, and what it was chosen from.
        is_calibrated: whether its ranges are of real data.
        outcome: what came of the budget; None without one.
    """

    fitted: Fitted
    is_calibrated: bool
    outcome: Outcome | None = None

    def __repr__(self) -> str:
        model = self.quantized
        marks = "" if self.is_calibrated else " [uncalibrated]"
        tensors = f"{len(model.activations)} activations and {len(model.weights)} weights"
        return f"<QdqModel for {model.target.name}{marks}: {tensors} quantized>"

    @property
    def quantized(self) -> QuantizedModel:
        """What is quantized, and on which grids."""
        return self.fitted.model

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know, one sentence each."""
        return self.quantized.notes

    @cached_property
    def graph(self) -> ir.Model:
        """What a file of it holds."""
        made = file_graph(self.quantized)
        return made if self.report is None else tell_budget(made, self.report)

    @cached_property
    def report(self) -> dict[str, Any] | None:
        """What came of the budget, JSON-ready; None without one."""
        return None if self.outcome is None else summary(self.outcome)

    def save(self, path: str | Path) -> None:
        """Write the ONNX file, wholly or not at all.

        Raises:
            DeviceError: the path cannot be written or the disk is full.
        """
        save_model(self.graph, Path(path))


def quantize_model(
    model: Source,
    *,
    target: str = TARGETS[0],
    config: BuildConfig | None = None,
    budget: Budget | None = None,
    calibration: Data | None = None,
    validation: Data | None = None,
    stats: Stats | None = None,
    calibration_cache: TrtCache | str | Path | None = None,
    on_event: OnEvent | None = None,
) -> QdqModel:
    """Quantize a float ONNX model by the rules of one target.

    With validation data, or a budget, the file is judged in ONNX Runtime beside the float model. Where it
    loses more than the budget allows, layers are left float: as few operations as that takes.

    Args:
        model: path of an ONNX file, or a model in memory: an onnx.ModelProto or onnx_ir.Model.
        target: "ort", "openvino" or "tensorrt".
        config: its parts `calibration`, `quantize` and `assign`.
        budget: by default none without validation data, and 1 % with them.
        calibration: samples that show the usual range of activations, as for `quantrt.build`.
        validation: samples, with labels for top1, on which the drop is measured; by default calibration
            samples, by cosine.
        stats: result of an earlier calibration of the same model.
        calibration_cache: scales of a calibration cache, kept bit for bit.
        on_event: called as stages go on.

    Returns:
        What `save` writes as a file, and `notes` and `report` tell of.

    Raises:
        AccuracyError: nothing that was made is inside the budget; `report` tells of it as of what is.
        UsageError: there is nothing to take ranges from, or to measure a budget on; an unknown name.
        ModelError, DataError: the model or the data cannot be used; nothing can be quantized.
    """
    check_choice("target", target, TARGETS)
    options, emit = _options(config, budget), on_event or (lambda event: None)
    loaded = load_model(model)
    cache = read_cache(calibration_cache) if isinstance(calibration_cache, str | Path) else calibration_cache
    samples = _samples(open_data("calibration", calibration, loaded), options, loaded)
    truth = open_data("validation", validation, loaded)
    asked = budget or (None if truth is None else Budget())
    wanted = (
        None
        if asked is None
        else _wanted(asked, loaded, samples=samples, truth=truth, options=options, emit=emit)
    )
    ranges = _Ranges(loaded, target, options=options, cache=cache, stats=stats, samples=samples)
    fitted = ranges.fit(emit)
    is_calibrated = not any(one is not None and one.is_random for one in (ranges.stats, ranges.origin))
    if wanted is None:
        return QdqModel(fitted, is_calibrated)
    can_mix = ranges.are_own and fitted.is_mixable
    outcome = keep_within(fitted, wanted, options, can_mix=can_mix, emit=emit)
    if not outcome.best.is_inside:
        raise why_outside(outcome)
    return QdqModel(outcome.best.fitted, is_calibrated, outcome)


def _options(config: BuildConfig | None, budget: Budget | None) -> BuildConfig:
    """All options; what was given is what it has to be.

    Raises:
        UsageError: it is something else.
    """
    check_type("budget", budget or Budget(), Budget)
    check_type("config", config or BuildConfig(), BuildConfig)
    return config or BuildConfig()


def _wanted(
    budget: Budget,
    model: Model,
    *,
    samples: Dataset | None,
    truth: Dataset | None,
    options: BuildConfig,
    emit: OnEvent,
) -> Wanted:
    """A budget with its metric and data, all of which is looked at before ranges are.

    Raises:
        UsageError: there are no data to measure on; the metric is unknown or fails.
    """
    metric, checked = tried_metric(budget, model, options, samples=samples, truth=truth, emit=emit)
    data = samples or truth
    if checked.data is None or data is None:
        raise UsageError(
            "cannot keep an accuracy budget without data to measure it on",
            expected="validation data, or real calibration data",
            hint="--valid-data valid.npz",
        )
    return Wanted(budget, metric, checked, data)


class _Ranges:
    """Where the ranges of one target's model come from."""

    def __init__(
        self,
        model: Model,
        target: str,
        *,
        options: BuildConfig,
        cache: TrtCache | None,
        stats: Stats | None,
        samples: Dataset | None,
    ) -> None:
        self._model = model
        self._target = target_named(target)
        self._options = options
        self._samples = samples
        self.stats = stats
        self.origin = None if cache is None else cache.origin
        self._match: CacheMatch | None = None
        if cache is not None:
            self._match = match_cache(model, cache, (self._target,), options.quantize)
        check_ranges(stats, model)
        has_rows = options.quantize.activations == "per-token"
        if not has_rows and all(one is None for one in (stats, samples, cache)):
            raise UsageError(
                "cannot quantize without ranges",
                expected="calibration data, ranges of an earlier calibration, or a calibration cache",
                hint="calibration=..., or QuantizeConfig(activations='per-token') of a transformer",
            )

    @property
    def are_own(self) -> bool:
        """Whether none of them came from a calibration cache."""
        return self._match is None

    def fit(self, emit: OnEvent) -> Fitted:
        """The quantized model, with all that is to be told of its ranges.

        Raises:
            ModelError: nothing in it can be quantized.
        """
        config, options = self._options.calibration, self._options.quantize
        reference = self._observe(lambda done, total: emit(Event("calibrating", done, total, "samples")))
        given = None if self._match is None else self._match.given
        made = fit(
            self._model,
            self.stats,
            self._target,
            reference,
            config=options,
            calibration=config,
            given=given,
        )
        if not made.model.has_int8:
            raise ModelError(
                f"no node of {self._model.called} can be quantized for {self._target.name}",
                got=_level_text(made.model, options.quantization_level),
                hint="another --target, a higher --quantization-level, or fewer exclusions",
            )
        told = () if self._samples is None else self._samples.remarks
        told += () if self._match is None else match_notes(self._match, self.stats)
        return replace(made, model=replace(made.model, notes=(*told, *made.model.notes)))

    def _observe(self, on_progress: Callable[[int, int | None], None]) -> Reference:
        """Ranges that are not given, and the float model on the first samples."""
        config, options = self._options.calibration, self._options.quantize
        samples, match = self._samples, self._match
        if samples is not None and self.stats is None:
            if match is None:
                names = observable(self._model)
                self.stats, reference = observe(
                    self._model, names, samples, options, config, on_progress=on_progress
                )
                return reference
            if match.missing:
                missing = tuple(match.missing)
                self.stats = collect(self._model, missing, samples, config, on_progress=on_progress)
        size = config.batch_size
        return sample_reference(
            self._model, samples, options, config, batch_size=size, with_twins=match is None
        )


def _level_text(quantized: QuantizedModel, level: str) -> str | None:
    """What the level that was asked for has to do with nothing being quantized."""
    return None if level == "auto" else why_level_left_all(quantized.graph.graph, level)


def _samples(data: Dataset | None, options: BuildConfig, model: Model) -> Dataset | None:
    """The calibration samples that are like each other, or random ones where these were asked for."""
    config = options.calibration
    if data is not None:
        return data if config.keep_unlike else without_unlike(data, config.max_samples)
    if config.calib_random:
        return made_up_data(model, config.max_samples or RANDOM_SAMPLES, config.seed)
    return None
