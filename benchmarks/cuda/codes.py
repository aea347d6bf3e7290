# SPDX-License-Identifier: Apache-2.0
"""A module's model in codes and its outputs in float32, for engines that are lowered without a build."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.tasks.inputs import Feed
from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.model.model import Model
from quantrt.quantize.quantize import observed_values, quantize
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.target import Target

__all__ = ["by_torch", "codes_of", "few_samples"]

CALIBRATION_SAMPLES = 4
MAXIMA = CalibrationConfig(method="minmax")


def few_samples(feed: Feed) -> Feed:
    """A few samples, repeated where there are fewer: to export a free batch with, and for ranges."""
    return {name: np.resize(x, (CALIBRATION_SAMPLES, *x.shape[1:])) for name, x in feed.items()}


def by_torch(module: torch.nn.Module, feed: Feed) -> npt.NDArray[np.float32]:
    """The module's output in float32 on the GPU, sample by sample; the module stays on the host."""
    module.cuda()
    with torch.no_grad():
        given = [torch.from_numpy(array).cuda() for array in feed.values()]
        found = [module(*(x[i : i + 1] for x in given)).cpu() for i in range(len(given[0]))]
    module.cpu()
    torch.cuda.empty_cache()
    return torch.cat(found).numpy()


def codes_of(model: Model, target: Target, config: QuantizeConfig, feed: Feed) -> QuantizedModel:
    """The model in codes, with ranges that are the largest values of a few samples."""
    names = observed_values(model, (target,), config)
    data = open_dataset(few_samples(feed), model.inputs)
    stats = collect(model, names, data, MAXIMA) if names else None
    return quantize(model, stats, target, config, MAXIMA)
