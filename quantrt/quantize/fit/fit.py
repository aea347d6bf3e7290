# SPDX-License-Identifier: Apache-2.0
"""Quantize with the range method that hurts the model's outputs least, measured on calibration samples.

The least error on each tensor is not always the least error on the output: where a few outliers matter to
nothing downstream, clipping them (entropy) wins; where they carry the result, as in transformers, it destroys
the model, and even the little that the least error clips is too much (minmax). Three quantized models, a few
dozen samples, and the difference is measured instead of guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import onnx_ir as ir

from quantrt.calibrate.given import Given
from quantrt.calibrate.stats import Stats
from quantrt.config import BuildConfig, CalibrationConfig, QuantizeConfig
from quantrt.model.model import Model
from quantrt.quantize.algorithms.bias_correction import ChannelMeans
from quantrt.quantize.explicit.read import read
from quantrt.quantize.fit.equalized import Equalized, quantize_twin
from quantrt.quantize.fit.in_floats import FLOAT_INPUTS, FLOAT_SUMS, try_in_floats
from quantrt.quantize.fit.reference import FIT_SAMPLES, Reference, observe_reference, sample_reference
from quantrt.quantize.fit.trials import (
    MEASURED,
    NOT_CORRECTED,
    ROUNDED,
    SEARCHED,
    Trials,
    try_searches,
    try_without_correction,
)
from quantrt.quantize.placement.obstacle import is_quantized
from quantrt.quantize.placement.place_by_config import place_by_config
from quantrt.quantize.quantize import quantize
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.scales.kept_scales import KeptScales
from quantrt.quantize.target import Target
from quantrt.reference.metrics import decibels

__all__ = [
    "FIT_SAMPLES",
    "FLOAT_INPUTS",
    "FLOAT_SUMS",
    "GIVEN_SCALES",
    "MEASURED",
    "NOT_CORRECTED",
    "OWN_SCALES",
    "ROUNDED",
    "ROW_SCALES",
    "SEARCHED",
    "Fitted",
    "Reference",
    "fit",
    "fit_own",
    "keeps_scales",
    "observe_reference",
    "sample_reference",
]

WHOLE_RANGES = "minmax"
"""The one range method of float codes."""

TRIED = ("auto", "entropy", WHOLE_RANGES)

TWIN_GAIN = 0.89
"""Measured noise of a twin over that without it, above which it is not worth it: 0.5 dB. Ranges of channels
are known from few samples, so on others less than that is gained, or nothing."""

UNSEEN_GAIN = 0.95
"""The same on LEAST_MORE further samples, where there are so many: a ResNet-8 gained 0.7 dB on the first and
lost 0.2 dB on all others."""

LOST_RATIO = 0.5
"""Noise of the best method from which on it is no better than another: of a twin, each method is tried."""

OWN_SCALES = "those it came with"
"""Range method of a model that was quantized before."""

ROW_SCALES = "of each row, as the model runs"
"""Range method where no activation has a scale that calibration would find."""

GIVEN_SCALES = "those given"
"""Range method where every scale came from elsewhere, such as a calibration cache."""

UNCORRECTED = "no samples to fit on: biases are not corrected"

UNHELPFUL = (
    "biases are not corrected: calibration samples have {0:.1f} dB with the correction and {1:.1f} dB without"
)

UNROUNDED = (
    "weights are rounded to the nearest codes: adaptive rounding is of int8, on samples and their ranges"
)

UNFITTED = "no samples to fit on: biases are not corrected, ranges are of least error per tensor"


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
        kept_float: names of nodes that were kept float beyond what the configuration says, with the reason.
    """

    model: QuantizedModel
    method: str
    noise_ratios: Mapping[str, float]
    floats: ir.Model | None = None
    means: ChannelMeans | None = None
    kept_float: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_mixable(self) -> bool:
        """Whether some of its nodes can go back to floats: its ranges were observed, and it was made here."""
        return self.floats is not None and self.method not in (GIVEN_SCALES, OWN_SCALES, ROW_SCALES)


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
    scales: KeptScales | None = None,
) -> Fitted:
    """Quantize for one target; with the range method "auto", by the best of TRIED as measured.

    Where nothing can be measured, "auto" is the least error of each tensor. Given scales are kept: methods
    are for what has none but is observed.

    Args:
        kept_float: names of further nodes that stay float, with the reason; not with `given` scales.
        scales: of weights, that earlier builds found.
    """
    methods = TRIED if calibration.method == "auto" and reference.is_comparable else (calibration.method,)
    methods = (WHOLE_RANGES,) if _are_floats(model, target, config, kept_float) else methods
    only_given = given is not None and (stats is None or stats.tensors.keys() <= given.scales.keys())
    is_settled = only_given or (given is None and stats is None)
    methods = methods[:1] if is_settled else methods
    trials = Trials(reference)
    with_means = partial(quantize, model, stats, target, config, means=reference.means, given=given)
    quantize_by = partial(with_means, kept_float=kept_float, scales=scales)
    for method in methods:
        like = next(iter(trials.models.values()), None)
        trials.models[method] = quantize_by(replace(calibration, method=method), like=like)
    method = methods[0] if len(methods) == 1 else min(methods, key=lambda name: _rank(trials.noise(name)))
    best, twin = method, None
    if stats is not None and given is None and reference.is_comparable:
        by_method = partial(with_means, replace(calibration, method=method), scales=scales)
        in_floats, kept_float = try_in_floats(method, config, trials, by_method, kept_float)
        best = method + in_floats
        if reference.twins:
            of_model = partial(quantize_twin, model=model, stats=stats, target=target, config=config)
            make = partial(of_model, options=calibration, means=reference.means, kept_float=kept_float)
            of_twins = methods if trials.noise(best) > LOST_RATIO else (method,)
            best, twin = _try_twins(best, {name: name + in_floats for name in of_twins}, trials, make)
    floats = model.graph if twin is None else twin.model.graph
    means = reference.means if twin is None else twin.means(reference.means)
    best, means, told = _checked_correction(best, trials, floats, means)
    can_search = given is None and reference.is_comparable and not target.activation.dtype.is_float
    if can_search:
        best = try_searches(best, trials, config, floats, means)
        told = [] if best.endswith(MEASURED) else told
    left_out = told if reference.batches else [UNCORRECTED if is_settled else UNFITTED]
    left_out += [UNROUNDED] if config.adaptive_rounding and not can_search else []
    return Fitted(
        replace(trials.models[best], notes=(*trials.models[best].notes, *left_out)),
        (GIVEN_SCALES if only_given else ROW_SCALES) if is_settled else best,
        trials.noise_ratios,
        floats=floats,
        means=means,
        kept_float=kept_float or {},
    )


def _checked_correction(
    best: str, trials: Trials, floats: ir.Model, means: ChannelMeans | None
) -> tuple[str, ChannelMeans | None, list[str]]:
    """The best model with its biases corrected or not; channel means where they are, a note where not.

    Where nothing was measured, a named method being taken as it is, the correction is too.
    """
    if means is None or best not in trials.noise_ratios:
        return best, means, []
    found = try_without_correction(best, trials, floats)
    if found == best:
        return best, means, []
    return found, None, [UNHELPFUL.format(*(decibels(trials.noise(label)) for label in (best, found)))]


def _try_twins(
    best: str, ways: Mapping[str, str], trials: Trials, make: Callable[[Equalized, str], QuantizedModel]
) -> tuple[str, Equalized | None]:
    """Add every twin to what was tried; the name of what is the best then, and its twin if it has one.

    Args:
        ways: names of twins without what makes them twins, by their range methods.
        make: quantizes a twin by a range method.
    """
    found = None
    for twin in trials.reference.twins:
        for method, way in ways.items():
            label = way + twin.label
            gains = trials.better(best, label, make(twin, method), TWIN_GAIN) == label
            if gains and trials.holds(best, label, UNSEEN_GAIN):
                best, found = label, twin
    return best, found


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
