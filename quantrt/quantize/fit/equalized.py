# SPDX-License-Identifier: Apache-2.0
"""Twins of a float model, equalized or smoothed, with what is known of the activations that differ."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import Dataset
from quantrt.calibrate.stats import Stats, TensorStats
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.model.model import Model
from quantrt.quantize.algorithms.bias_correction import ChannelMeans
from quantrt.quantize.algorithms.equalization import (
    Scales,
    choose_scales,
    equalized_values,
    scale_channels,
    without_streams,
)
from quantrt.quantize.algorithms.smoothing import Smoothing, choose_smoothing, multiplied_values, smooth
from quantrt.quantize.fit.divided_ranges import DividedRanges
from quantrt.quantize.quantize import quantize
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.target import Target

__all__ = [
    "EQUALIZED",
    "LEAST_SAMPLES",
    "SAMPLES",
    "SMOOTHED",
    "STREAMS",
    "WEIGHT_QMAX",
    "Equalized",
    "equalize",
    "equalized_twins",
    "make_twins",
    "quantize_twin",
    "smoothed_twins",
    "wants_equalization",
]

EQUALIZED = ", equalized"
STREAMS = ", equalized with residual streams"
SMOOTHED = ", smoothed"
MULTIPLIED = ", smoothed by multiplications"
"""Added to the range method of a model that was made of such a twin."""

WEIGHT_QMAX = 127

SAMPLES = 128
"""Calibration samples that ranges of channels are taken from, at most."""

LEAST_SAMPLES = 100
"""With fewer nothing is equalized: a channel that is narrow in them may be wide elsewhere, and clips there.
From 64 two ResNets became worse by 2.5 dB on other samples, from 12 a face detector's scores by 5 dB."""


@dataclass(frozen=True)
class Equalized:
    """A float model with equalized or smoothed channels: the same outputs, other values in between.

    Attributes:
        model: the model with its graph replaced.
        observed: statistics of the values that differ, by their new names.
        scales: what the output channels of layers were divided by.
        readers: the same, and those of `multiplied`, by the layers that read them.
        multiplied: what Muls divide values by, by the names of the values.
        streams: the layers among those of `scales` that residual streams begin at.
        label: what it is called in the name of a method.
    """

    model: Model
    observed: Mapping[str, TensorStats]
    scales: Scales
    readers: Scales
    multiplied: Scales = field(default_factory=dict)
    streams: tuple[str, ...] = ()
    label: str = EQUALIZED

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of it: which residual streams have channels that 8 bits would lose."""
        if not self.streams:
            return ()
        spread = max(float(self.scales[name].max() / self.scales[name].min()) for name in self.streams)
        named = ", ".join(f"'{name}'" for name in self.streams)
        return (
            f"channels of the residual streams from {named} have ranges too unlike for 8 bits: they are "
            f"divided by up to {spread:.0f} to 1 where they are made, and multiplied where they are read",
        )

    def stats(self, stats: Stats) -> Stats:
        """Those of the given model, and of the values that differ from it."""
        return replace(stats, tensors={**stats.tensors, **self.observed})

    def means(self, means: ChannelMeans | None) -> ChannelMeans | None:
        """Channel means of layer inputs, from those of the given model."""
        if means is None:
            return None
        return {
            name: mean / self.readers[name] if name in self.readers else mean for name, mean in means.items()
        }


def make_twins(
    model: Model, samples: Dataset, config: QuantizeConfig, *, limit: int | None = None
) -> tuple[Equalized, ...]:
    """Every twin that config wants and something is predicted to gain by, the cheapest first.

    Args:
        limit: calibration samples to use at most.
    """
    found = equalize(model, samples, config, limit=limit)
    return (*found, *smoothed_twins(model, samples, config, found, limit=limit))


def equalize(
    model: Model, samples: Dataset, config: QuantizeConfig, *, limit: int | None = None
) -> tuple[Equalized, ...]:
    """Equalize what gains by it, as predicted: without residual streams, and with them where these gain.

    Args:
        limit: calibration samples to use at most, when fewer than SAMPLES.

    Returns:
        No twin where nothing gains, or config does not want it.
    """
    if not wants_equalization(samples, config, limit):
        return ()
    batches = (batch.inputs for batch in samples.batches(1, min(SAMPLES, limit or SAMPLES)))
    scales = choose_scales(model.graph, batches, qmax=WEIGHT_QMAX)
    return equalized_twins(model, samples, scales, limit=limit)


def wants_equalization(samples: Dataset, config: QuantizeConfig, limit: int | None) -> bool:
    """Whether config wants it and there are samples enough; one scale for a weight would lose by it."""
    is_wanted = config.equalization and config.per_channel
    return is_wanted and (limit or SAMPLES) >= LEAST_SAMPLES and _has_enough(samples)


def equalized_twins(
    model: Model,
    samples: Dataset,
    scales: Scales,
    *,
    ranges: DividedRanges | None = None,
    limit: int | None = None,
) -> tuple[Equalized, ...]:
    """The twins by these scales: without residual streams, and with them where some are of streams.

    Args:
        ranges: of the values that `scales` divide; None, or of too few samples, to run the model for them.
        limit: calibration samples to use at most, when fewer than SAMPLES.
    """
    if not scales:
        return ()
    if ranges is None or ranges.samples < LEAST_SAMPLES:
        ranges = DividedRanges(model.graph, scales, None if ranges is None else ranges.names)
        options = CalibrationConfig(max_samples=min(SAMPLES, limit or SAMPLES))
        collect(model, (), samples, options, watcher=ranges)
    observed = ranges.stats()
    chains = without_streams(model.graph, scales)
    twins = [] if not chains else [_scaled_twin(model, chains, observed, EQUALIZED)]
    if len(chains) < len(scales):
        streams = tuple(name for name in scales if name not in chains)
        twins.append(replace(_scaled_twin(model, scales, observed, STREAMS), streams=streams))
    return tuple(twins)


def _scaled_twin(model: Model, scales: Scales, observed: Mapping[str, TensorStats], label: str) -> Equalized:
    """A twin with the statistics of its values, which are given by their names in the model."""
    changed = replace(model, graph=scale_channels(model.graph, scales))
    _, readers = equalized_values(changed.graph, scales)
    renamed: dict[str, TensorStats] = {}
    for before, after in zip(model.graph.graph, changed.graph.graph, strict=True):
        for old, new in zip(before.outputs, after.outputs, strict=True):
            if old.name != new.name and (old.name or "") in observed:
                renamed[new.name or ""] = observed[old.name or ""]
    return Equalized(changed, renamed, scales, readers, label=label)


def quantize_twin(
    twin: Equalized,
    method: str,
    *,
    model: Model,
    stats: Stats,
    target: Target,
    config: QuantizeConfig,
    options: CalibrationConfig,
    means: ChannelMeans | None,
    kept_float: Mapping[str, str] | None,
) -> QuantizedModel:
    """A twin of a model, quantized as a graph of that model."""
    quantized = quantize(
        twin.model,
        twin.stats(stats),
        target,
        config,
        replace(options, method=method),
        means=twin.means(means),
        kept_float=kept_float,
    )
    return replace(
        quantized,
        model=model,
        channel_scales=twin.scales,
        multiplied=twin.multiplied,
        notes=(*quantized.notes, *twin.notes),
    )


def smoothed_twins(
    model: Model,
    samples: Dataset,
    config: QuantizeConfig,
    equalized: Sequence[Equalized],
    *,
    limit: int | None = None,
) -> list[Equalized]:
    """Twins with smooth activations before products, without and with Muls, where config wants them.

    How much is smoothed is chosen on SAMPLES; the ranges of what is smooth then are of as many samples as all
    other ranges, or it would clip where these do not.

    Args:
        equalized: twins without smoothing: other edges are as in the first.
        limit: calibration samples to use at most.
    """
    if config.smoothing == "off" or not config.per_channel:
        return []
    batches = (batch.inputs for batch in samples.batches(1, min(SAMPLES, limit or SAMPLES)))
    only_folded = config.smoothing == "folded"
    found = choose_smoothing(model.graph, batches, qmax=WEIGHT_QMAX, only_folded=only_folded)
    if not (found.folded or found.multiplied):
        return []
    folded = {**(equalized[0].scales if equalized else {}), **found.folded}
    graph = scale_channels(model.graph, folded)
    names, readers = equalized_values(graph, folded)
    made, products = multiplied_values(model.graph, found.multiplied)
    whole = replace(model, graph=smooth(model.graph, Smoothing(folded, found.multiplied)))
    observed = collect(whole, (*names, *made), samples, CalibrationConfig(max_samples=limit)).tensors
    twins = []
    if found.folded:  # what Muls make is all that differs behind them
        twins.append(Equalized(replace(model, graph=graph), observed, folded, readers, label=SMOOTHED))
    if found.multiplied:
        readers = {**readers, **products}
        twins.append(Equalized(whole, observed, folded, readers, found.multiplied, label=MULTIPLIED))
    return twins


def _has_enough(samples: Dataset) -> bool:
    known = samples.sample_count
    if known is not None:
        return known >= LEAST_SAMPLES
    return sum(1 for _ in itertools.islice(samples.samples(), LEAST_SAMPLES)) == LEAST_SAMPLES
