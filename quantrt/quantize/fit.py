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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quantrt.calibrate.stats import Stats
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.ir.session import float_session
from quantrt.model.model import Model
from quantrt.quantize.algorithms.bias_correction import ChannelMeans, observe_channel_means
from quantrt.quantize.qdq import write
from quantrt.quantize.quantize import quantize
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.target import Target
from quantrt.reference.metrics import Error

__all__ = ["FIT_SAMPLES", "Fitted", "Reference", "fit", "observe_reference"]

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]

FIT_SAMPLES = 64
"""Calibration samples that are run again, to measure output error and channel means."""

TRIED = ("auto", "entropy")


@dataclass(frozen=True)
class Reference:
    """The float model on a few calibration samples.

    Attributes:
        batches: inputs by name.
        outputs: the float model's outputs for each batch, in its order; integer ones left out.
        means: channel means of layer inputs over these samples; None when biases are not corrected.
    """

    batches: Sequence[Inputs]
    outputs: Sequence[Sequence[Array]]
    means: ChannelMeans | None


@dataclass(frozen=True)
class Fitted:
    """A quantized model and the methods it was chosen from.

    Attributes:
        model: the best one.
        method: its range method.
        noise_ratios: noise over signal power of the outputs, by method tried.
    """

    model: QuantizedModel
    method: str
    noise_ratios: Mapping[str, float]


def observe_reference(model: Model, batches: Sequence[Inputs], config: QuantizeConfig) -> Reference:
    """Run the float model on a few samples."""
    session = float_session(model.graph)
    outputs = [_float_outputs(session.run(None, dict(batch))) for batch in batches]
    means = observe_channel_means(model.graph, batches) if config.bias_correction else None
    return Reference(batches, outputs, means)


def fit(
    model: Model,
    stats: Stats,
    target: Target,
    reference: Reference,
    *,
    config: QuantizeConfig,
    calibration: CalibrationConfig,
    on_progress: Callable[[int], None] | None = None,
) -> Fitted:
    """Quantize for one target; with the range method "auto", by the better of TRIED as measured.

    Args:
        on_progress: called with the number of methods done.
    """
    methods = TRIED if calibration.method == "auto" else (calibration.method,)
    models: dict[str, QuantizedModel] = {}
    noise: dict[str, float] = {}
    for done, method in enumerate(methods, 1):
        models[method] = quantize(
            model, stats, target, config, replace(calibration, method=method), means=reference.means
        )
        noise[method] = _output_noise(models[method], reference)
        log.debug("%s ranges for %s: noise ratio %.2e", method, target.name, noise[method])
        if on_progress is not None:
            on_progress(done)
    best = min(noise, key=lambda method: math.inf if math.isnan(noise[method]) else noise[method])
    return Fitted(models[best], best, noise)


def _output_noise(quantized: QuantizedModel, reference: Reference) -> float:
    """Mean over the outputs of noise power over signal power, run in ONNX Runtime as written."""
    session = float_session(write(quantized))
    errors = [Error() for _ in reference.outputs[0]] if reference.outputs else []
    for batch, wanted in zip(reference.batches, reference.outputs, strict=True):
        for error, ref, got in zip(
            errors, wanted, _float_outputs(session.run(None, dict(batch))), strict=True
        ):
            error.add(ref, got)
    return float(np.mean([error.noise_ratio for error in errors])) if errors else 0.0


def _float_outputs(outputs: Sequence[Any]) -> list[Array]:
    return [array for array in outputs if isinstance(array, np.ndarray) and array.dtype.kind == "f"]
