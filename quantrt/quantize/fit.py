# SPDX-License-Identifier: Apache-2.0
"""Quantize with the range method that hurts the model's outputs least, measured on calibration samples.

The least error on each tensor is not always the least error on the output: where a few outliers matter to
nothing downstream, clipping them (entropy) wins; where they carry the result, it destroys the model. Two
quantized models, a few dozen samples, and the difference is measured instead of guessed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime

from quantrt.calibrate.dataset import Dataset
from quantrt.calibrate.given import Given
from quantrt.calibrate.stats import Stats
from quantrt.calibrate.taps import FLOAT_TYPES
from quantrt.config import BuildConfig, CalibrationConfig, QuantizeConfig
from quantrt.device import saturates
from quantrt.errors import ModelError
from quantrt.ir.session import ORT_ERRORS, float_session
from quantrt.model.model import Model
from quantrt.quantize.algorithms.ada_round import round_adaptively
from quantrt.quantize.algorithms.bias_correction import ChannelMeans, observe_channel_means
from quantrt.quantize.algorithms.range_search import search_ranges
from quantrt.quantize.equalized import Equalized, make_twins, quantize_twin
from quantrt.quantize.obstacle import is_quantized
from quantrt.quantize.place_by_config import place_by_config
from quantrt.quantize.qdq import write
from quantrt.quantize.qdq_read import read
from quantrt.quantize.quantize import quantize, with_activations, with_integer_biases, with_weights
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.target import Target
from quantrt.reference.metrics import Error

__all__ = [
    "FIT_SAMPLES",
    "GIVEN_SCALES",
    "OWN_SCALES",
    "ROUNDED",
    "ROW_SCALES",
    "Fitted",
    "Reference",
    "fit",
    "fit_own",
    "keeps_scales",
    "observe_reference",
    "sample_reference",
]

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]

FIT_SAMPLES = 64
"""Calibration samples that are run again, to measure output error and channel means."""

TRIED = ("auto", "entropy")

TWIN_GAIN = 0.89
"""Measured noise of a twin over that without it, above which it is not worth it: 0.5 dB. Ranges of channels
are known from few samples, so on others less than that is gained, or nothing."""

LOST_RATIO = 0.5
"""Noise of the best method from which on it is no better than another: of a twin, each method is tried."""

OWN_SCALES = "those it came with"
"""Range method of a model that was quantized before."""

SEARCHED = ", searched"
"""Added to the range method of a model whose ranges were searched by the error of its outputs."""

ROUNDED = ", rounded adaptively"
"""Added to the range method of a model whose weights were rounded by what their layers make."""

SEARCH_GAIN = 0.95
"""Measured noise with codes or ranges that were searched over that without, above which they are not worth
it: a quarter of a decibel; what a search gains on the samples that it saw is more than it gains on others.
Codes have to gain as much on samples that they were not searched on."""

WHOLE_RANGES = "minmax"
"""The one range method of float codes."""

ROW_SCALES = "of each row, as the model runs"
"""Range method where no activation has a scale that calibration would find."""

GIVEN_SCALES = "those given"
"""Range method where every scale came from elsewhere, such as a calibration cache."""

UNCORRECTED = "no samples to fit on: biases are not corrected"

UNROUNDED = (
    "weights are rounded to the nearest codes: adaptive rounding is of int8, on samples and their ranges"
)

UNFITTED = "no samples to fit on: biases are not corrected, ranges are of least error per tensor"


@dataclass(frozen=True)
class Reference:
    """The float model on a few calibration samples.

    Attributes:
        graph: the float model.
        batches: inputs by name; none when only ranges are given.
        means: channel means of layer inputs over these samples; None when biases are not corrected.
        twins: the model with equalized or smoothed channels; none where nothing gains by it.
        seen: the outputs, when the model has run for its means.
    """

    graph: ir.Model
    batches: Sequence[Inputs]
    means: ChannelMeans | None = None
    twins: tuple[Equalized, ...] = ()
    seen: Sequence[Sequence[Array]] | None = None

    @property
    def is_comparable(self) -> bool:
        """Whether there is an output that noise can be measured on."""
        return bool(self.batches) and any(value.dtype in FLOAT_TYPES for value in self.graph.graph.outputs)

    @cached_property
    def outputs(self) -> Sequence[Sequence[Array]]:
        """The floating-point outputs for each batch, in the model's order."""
        if self.seen is not None:
            return self.seen
        session = float_session(self.graph)
        return [_run(session, batch) for batch in self.batches]


@dataclass(frozen=True)
class Fitted:
    """A quantized model and the methods it was chosen from.

    Attributes:
        model: the best one.
        method: its range method.
        noise_ratios: noise over signal power of the outputs, by method tried, the best of which is tried with
            equalized and smoothed channels too; empty where there was nothing to choose, or to measure it on.
        floats: the float graph that was rounded: of a twin where that was better.
        means: channel means of layer inputs in that graph; None where biases are not corrected.
    """

    model: QuantizedModel
    method: str
    noise_ratios: Mapping[str, float]
    floats: ir.Model | None = None
    means: ChannelMeans | None = None


def observe_reference(
    model: Model, batches: Sequence[Inputs], config: QuantizeConfig, twins: Sequence[Equalized] = ()
) -> Reference:
    """The float model on a few samples; none gives a reference that nothing is measured against.

    Args:
        twins: its equalized and smoothed twins, to be tried too.
    """
    if not batches:
        return Reference(model.graph, ())
    if not config.bias_correction:
        return Reference(model.graph, batches, twins=tuple(twins))
    seen: list[list[Array]] = []
    means = observe_channel_means(model.graph, batches, lambda outputs: seen.append(_floating(outputs)))
    return Reference(model.graph, batches, means, tuple(twins), seen)


def sample_reference(
    model: Model,
    samples: Dataset | None,
    config: QuantizeConfig,
    options: CalibrationConfig,
    *,
    batch_size: int = 1,
    with_twins: bool = True,
) -> Reference:
    """The float model on the first calibration samples, and its twins; without samples, neither.

    Args:
        batch_size: of a run; every layer's input is held at once, and larger runs are hardly faster.
        with_twins: equalize and smooth channels where config wants that; not where scales are given.
    """
    if samples is None:
        return observe_reference(model, (), config)
    limit = min(FIT_SAMPLES, options.max_samples or FIT_SAMPLES)
    batches = [batch.inputs for batch in samples.batches(batch_size, limit)]
    twins = make_twins(model, samples, config, limit=options.max_samples) if with_twins else ()
    return observe_reference(model, batches, config, twins)


def fit(
    model: Model,
    stats: Stats | None,
    target: Target,
    reference: Reference,
    *,
    config: QuantizeConfig,
    calibration: CalibrationConfig,
    given: Given | None = None,
    kept_float: Mapping[str, str] | None = None,
) -> Fitted:
    """Quantize for one target; with the range method "auto", by the better of TRIED as measured.

    Where nothing can be measured, "auto" is the least error of each tensor. Given scales are kept: methods
    are for what has none but is observed.

    Args:
        kept_float: names of further nodes that stay float, with the reason; not with `given` scales.
    """
    methods = TRIED if calibration.method == "auto" and reference.is_comparable else (calibration.method,)
    methods = (WHOLE_RANGES,) if _are_floats(model, target, config, kept_float) else methods
    only_given = given is not None and (stats is None or stats.tensors.keys() <= given.scales.keys())
    is_settled = only_given or (given is None and stats is None)
    methods = methods[:1] if is_settled else methods
    trials = _Trials(reference)
    quantize_by = partial(
        quantize, model, stats, target, config, means=reference.means, given=given, kept_float=kept_float
    )
    for method in methods:
        like = next(iter(trials.models.values()), None)
        trials.models[method] = quantize_by(replace(calibration, method=method), like=like)
    best = methods[0] if len(methods) == 1 else min(methods, key=lambda method: _rank(trials.noise(method)))
    twin = None
    if stats is not None and given is None and reference.is_comparable and reference.twins:
        make = partial(
            quantize_twin,
            model=model,
            stats=stats,
            target=target,
            config=config,
            options=calibration,
            means=reference.means,
            kept_float=kept_float,
        )
        best, twin = _try_twins(best, trials, make)
    floats = model.graph if twin is None else twin.model.graph
    means = reference.means if twin is None else twin.means(reference.means)
    can_search = given is None and reference.is_comparable and not target.activation.dtype.is_float
    if can_search:
        best = _try_searches(best, trials, config, floats, means)
    chosen = trials.models[best]
    left_out = [] if reference.batches else [UNCORRECTED if is_settled else UNFITTED]
    left_out += [UNROUNDED] if config.adaptive_rounding and not can_search else []
    return Fitted(
        replace(chosen, notes=(*chosen.notes, *left_out)),
        (GIVEN_SCALES if only_given else ROW_SCALES) if is_settled else best,
        trials.noise_ratios,
        floats=floats,
        means=means,
    )


@dataclass
class _Trials:
    """Quantized models by the methods they were made with, and their noise where that was asked for."""

    reference: Reference
    models: dict[str, QuantizedModel] = field(default_factory=dict)
    noise_ratios: dict[str, float] = field(default_factory=dict)

    def noise(self, label: str) -> float:
        """That of a model's outputs."""
        if label not in self.noise_ratios:
            model = self.models[label]
            self.noise_ratios[label] = _output_noise(model, self.reference)
            log.debug("%s for %s: noise ratio %.2e", label, model.target.name, self.noise_ratios[label])
        return self.noise_ratios[label]

    def better(self, best: str, label: str, model: QuantizedModel, gain: float) -> str:
        """Add a model; its label where its noise is below `gain` of that of the best, or that one's."""
        self.models[label] = model
        most = gain * self.noise(best)
        return label if self.noise(label) < most else best


def _try_twins(
    best: str, trials: _Trials, make: Callable[[Equalized, str], QuantizedModel]
) -> tuple[str, Equalized | None]:
    """Add every twin to what was tried; the name of what is the best then, and its twin if it has one.

    Args:
        make: quantizes a twin by a range method.
    """
    methods = tuple(trials.models) if trials.noise(best) > LOST_RATIO else (best,)
    found = None
    for twin in trials.reference.twins:
        for method in methods:
            label = method + twin.label
            best = trials.better(best, label, make(twin, method), TWIN_GAIN)
            found = twin if best == label else found
    return best, found


def _try_searches(
    best: str, trials: _Trials, config: QuantizeConfig, floats: ir.Model, means: ChannelMeans | None
) -> str:
    """Add the best model with other codes and ranges, by what the samples show; the name of the best then.

    Args:
        floats: the float graph behind that model, with its channel means.
    """
    reference = trials.reference
    if config.adaptive_rounding:
        best = _try_rounding(best, trials, floats, means)
    if config.range_search:
        ranges = search_ranges(trials.models[best], reference.batches, reference.outputs)
        made = with_activations(trials.models[best], ranges)
        best = trials.better(best, best + SEARCHED, made, SEARCH_GAIN)
    return best


def _try_rounding(best: str, trials: _Trials, floats: ir.Model, means: ChannelMeans | None) -> str:
    """Add the best model with its weights rounded by the samples, where half of these tell of the other half.

    A layer of more inputs than it reads rows can be right on those rows and worse on all others.
    """
    reference, model = trials.reference, trials.models[best]

    def rounded(batches: Sequence[Inputs]) -> QuantizedModel:
        return with_weights(model, round_adaptively(floats, model.weights, batches), floats, means)

    seen, others = reference.batches[::2], reference.batches[1::2]
    if others:
        unseen = replace(reference, batches=others, seen=reference.outputs[1::2])
        if _output_noise(rounded(seen), unseen) > SEARCH_GAIN * _output_noise(model, unseen):
            return best
    return trials.better(best, best + ROUNDED, rounded(reference.batches), SEARCH_GAIN)


def _are_floats(
    model: Model, target: Target, config: QuantizeConfig, kept_float: Mapping[str, str] | None
) -> bool:
    """Whether all codes are of a float type."""
    is_float = target.activation.dtype.is_float
    return is_float and not place_by_config(model.graph, target, config, kept_float).grids


def fit_own(model: Model) -> Fitted:
    """A model that was quantized before, on its own scales: nothing is measured."""
    return Fitted(read(model), OWN_SCALES, {})


def keeps_scales(model: Model, config: BuildConfig) -> bool:
    """Whether codes are on the scales that a model was quantized with: so they are on a GPU.

    The libraries of a CPU run such a model as it is.
    """
    return config.device.device == "cuda" and is_quantized(model.graph.graph)


def _rank(noise_ratio: float) -> float:
    return math.inf if math.isnan(noise_ratio) else noise_ratio


def _output_noise(quantized: QuantizedModel, reference: Reference) -> float:
    """Mean over outputs of noise power over signal power, in ONNX Runtime, in integers where sums fit."""
    session = float_session(write(quantized if saturates() else with_integer_biases(quantized)))
    errors = [Error() for _ in reference.outputs[0]]
    for batch, wanted in zip(reference.batches, reference.outputs, strict=True):
        for error, ref, got in zip(errors, wanted, _run(session, batch), strict=True):
            error.add(ref, got)
    return float(np.mean([error.noise_ratio for error in errors]))


def _run(session: onnxruntime.InferenceSession, batch: Inputs) -> list[Array]:
    """The floating-point outputs for one batch."""
    try:
        outputs = session.run(None, dict(batch))
    except ORT_ERRORS as error:
        raise ModelError("ONNX Runtime cannot run the model", got=str(error).strip()) from error
    return _floating(outputs)


def _floating(outputs: Sequence[Any]) -> list[Array]:
    return [array for array in outputs if isinstance(array, np.ndarray) and array.dtype.kind == "f"]
