# SPDX-License-Identifier: Apache-2.0
"""Quantized models that were tried, and the searches for a better one, by the noise of the outputs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from quantrt.config import QuantizeConfig
from quantrt.quantize.algorithms.ada_round import round_adaptively
from quantrt.quantize.algorithms.bias_correction import ChannelMeans
from quantrt.quantize.algorithms.measured_biases import measure_biases
from quantrt.quantize.algorithms.range_search import search_ranges
from quantrt.quantize.fit.reference import LEAST_MORE, Inputs, Reference, output_noise, unseen_noises
from quantrt.quantize.quantize import with_activations, with_weights
from quantrt.quantize.quantized_model import QuantizedModel

__all__ = [
    "MEASURED",
    "NOT_CORRECTED",
    "ROUNDED",
    "SEARCHED",
    "Trials",
    "try_searches",
    "try_without_correction",
]

log = logging.getLogger(__name__)

SEARCHED = ", searched"
"""Added to the range method of a model whose ranges were searched by the error of its outputs."""

ROUNDED = ", rounded adaptively"
"""Added to the range method of a model whose weights were rounded by what their layers make."""

NOT_CORRECTED = ", biases as they were"
"""Added to the range method of a model whose outputs are nearer without the correction of its biases."""

MEASURED = ", biases as measured"
"""Added to the range method of a model whose layers have no mean error, weights and activations rounded."""

SEARCH_GAIN = 0.95
"""Measured noise with codes that were searched over that without, above which they are not worth it: a
quarter of a decibel; what a search gains on the samples that it saw is more than it gains on others. They
have to gain as much on samples that they were not searched on."""

RANGE_GAIN = 0.89
"""The same of ranges: half a decibel on the samples that they were searched on, or on half of these where no
others tell; SEARCH_GAIN on LEAST_MORE others or more, which what is rare has met."""


@dataclass
class Trials:
    """Quantized models by the methods they were made with, and their noise where that was asked for."""

    reference: Reference
    models: dict[str, QuantizedModel] = field(default_factory=dict)
    noise_ratios: dict[str, float] = field(default_factory=dict)

    def noise(self, label: str) -> float:
        """That of a model's outputs."""
        if label not in self.noise_ratios:
            model = self.models[label]
            self.noise_ratios[label] = output_noise(model, self.reference)
            log.debug("%s for %s: noise ratio %.2e", label, model.target.name, self.noise_ratios[label])
        return self.noise_ratios[label]

    def better(self, best: str, label: str, model: QuantizedModel, gain: float) -> str:
        """Add a model; its label where its noise is below `gain` of that of the best, or that one's."""
        self.models[label] = model
        most = gain * self.noise(best)
        return label if self.noise(label) < most else best

    def holds(self, best: str, label: str, gain: float) -> bool:
        """Whether a model's noise is so far below that of the best on further samples too, if there are."""
        noises = unseen_noises((self.models[best], self.models[label]), self.reference, LEAST_MORE)
        return noises is None or noises[1] < gain * noises[0]


def try_without_correction(best: str, trials: Trials, floats: ir.Model) -> str:
    """Add the best model with its biases as they were; its name where further samples gain by that too.

    A correction takes back the mean error of a layer. Where few loud samples make that mean (the magnitudes
    of a speech detector), the error of all others grows by it, and behind a Relu they are what is heard.

    Args:
        floats: the float graph behind that model.
    """
    model, label = trials.models[best], best + NOT_CORRECTED
    if trials.better(best, label, with_weights(model, model.weights, floats, None), SEARCH_GAIN) == best:
        return best
    noises = unseen_noises((model, trials.models[label]), trials.reference)
    return label if noises is None or noises[1] < noises[0] else best


def try_searches(
    best: str, trials: Trials, config: QuantizeConfig, floats: ir.Model, means: ChannelMeans | None
) -> str:
    """Add the best model with other codes and ranges, by what the samples show; the name of the best then.

    Args:
        floats: the float graph behind that model, with its channel means.
    """
    if config.adaptive_rounding:
        best = _try_rounding(best, trials, floats, means)
    if config.range_search:
        best = _try_ranges(best, trials)
    if config.measured_biases and not trials.models[best].placement.per_token:
        best = _try_measured_biases(best, trials, floats)
    return best


def _try_rounding(best: str, trials: Trials, floats: ir.Model, means: ChannelMeans | None) -> str:
    """Add the best model with its weights rounded by the samples, where other samples gain by that too.

    A layer of more inputs than it reads rows can be right on those rows and worse on all others: of sentences
    in pairs that say the same, what half of them tell holds on the other half, and not on other sentences.
    """
    model = trials.models[best]

    def rounded(batches: Sequence[Inputs]) -> QuantizedModel:
        codes = round_adaptively(floats, model.weights, batches, corrects_biases=means is not None)
        return with_weights(model, codes, floats, means)

    return _try_learned(best, best + ROUNDED, trials, rounded)


def _try_ranges(best: str, trials: Trials) -> str:
    """Add the best model with ranges searched by the outputs, where other samples gain by them too.

    What a narrower range clips is rare, and large: a ResNet-20 gained 0.7 dB on the samples that its ranges
    were searched on and on 32 others, and lost as much on 236 more and on pictures for no calibration.
    """
    reference, model = trials.reference, trials.models[best]
    made = _searched(model, reference)
    if output_noise(made, reference) > RANGE_GAIN * trials.noise(best):
        return best
    noises, gain = unseen_noises((model, made), reference), SEARCH_GAIN
    seen, unseen = reference.half(0), reference.half(1)
    if noises is None and seen is not None and unseen is not None:
        noises, gain = [output_noise(one, unseen) for one in (model, _searched(model, seen))], RANGE_GAIN
    if noises is not None and noises[1] > gain * noises[0]:
        return best
    return trials.better(best, best + SEARCHED, made, RANGE_GAIN)


def _try_measured_biases(best: str, trials: Trials, floats: ir.Model) -> str:
    """Add the best model with biases by what its layers make, where other samples gain by them too.

    What clips a few loud samples on purpose shifts the mean by them: a MobileNetV3 lost 20 dB by its return.
    """
    model = trials.models[best]

    def corrected(batches: Sequence[Inputs]) -> QuantizedModel:
        graph = measure_biases(model, floats, batches)
        return with_activations(replace(model, graph=graph), model.activations)

    return _try_learned(best, best + MEASURED, trials, corrected)


def _try_learned(
    best: str, label: str, trials: Trials, learned: Callable[[Sequence[Inputs]], QuantizedModel]
) -> str:
    """Add what is learned from the samples; its label where they gain by it, and further ones do too.

    Where there are no further ones, what half of the samples tell has to hold on the other half.
    """
    reference, model = trials.reference, trials.models[best]
    if trials.better(best, label, learned(reference.batches), SEARCH_GAIN) == best:
        return best
    noises, unseen = unseen_noises((model, trials.models[label]), reference), reference.half(1)
    if noises is None and unseen is not None:
        noises = [output_noise(one, unseen) for one in (model, learned(reference.batches[::2]))]
    return label if noises is None or noises[1] < SEARCH_GAIN * noises[0] else best


def _searched(model: QuantizedModel, reference: Reference) -> QuantizedModel:
    return with_activations(model, search_ranges(model, reference.batches, reference.outputs))
