# SPDX-License-Identifier: Apache-2.0
"""What predictors look at: a float model, what a target would quantize of it, what is known of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import Dataset
from quantrt.calibrate.stats import Stats
from quantrt.calibrate.taps import Taps, is_float
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.model.model import Model
from quantrt.quantize.placement.place_by_config import place_by_config
from quantrt.quantize.quantize import quantize
from quantrt.quantize.quantized_model import Placement, QuantizedModel, Use
from quantrt.quantize.target import Target
from quantrt.trouble.alone import Alone
from quantrt.trouble.observe import MEMORY_BYTES, ROWS, Channels, observe_inputs

__all__ = ["Extremes", "Scene", "make_scene"]

Extremes = Mapping[str, tuple[float, float]]
"""The least and the greatest finite number of values, by name."""

OnStage = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Scene:
    """What is known before anything is built.

    Attributes:
        target: whose rules placed the 8-bit nodes.
        is_gpu: whether floats are fp16 there.
        quantized: None without ranges.
        stats: None without ranges.
        extremes: of every float value with samples, of quantized ones with ranges; else empty.
        inputs: of 8-bit layers, by channel; empty without samples.
        alone: what layers do to the outputs; None without samples.
    """

    model: Model
    target: Target
    is_gpu: bool
    placement: Placement
    quantized: QuantizedModel | None = None
    stats: Stats | None = None
    extremes: Extremes = field(default_factory=dict)
    inputs: Mapping[Use, Channels] = field(default_factory=dict)
    alone: Alone | None = None

    @property
    def nodes(self) -> Iterator[ir.Node]:
        """Those of the main graph, in topological order."""
        yield from self.model.graph.graph

    @cached_property
    def int8_nodes(self) -> frozenset[str]:
        """Names of the nodes that run in 8 bits."""
        return frozenset(row.node for row in self.placement.decisions if row.is_int8)

    def int8_step(self, name: str) -> float | None:
        """Of a symmetric 8-bit grid over all of a value; None where its range is not known or zero."""
        if name not in self.extremes:
            return None
        peak = max(abs(end) for end in self.extremes[name])
        return peak / 127 if peak > 0 else None


def make_scene(
    model: Model,
    target: Target,
    *,
    is_gpu: bool,
    config: QuantizeConfig,
    data: Dataset | None = None,
    stats: Stats | None = None,
    samples: int = 16,
    on_stage: OnStage = lambda stage, done, total: None,
) -> Scene:
    """Look at a model, with samples, with ranges, or with neither.

    Args:
        data: samples of the kind that are calibrated on.
        stats: of an earlier calibration; with data alone they are collected on the samples.
        samples: how many of the data are run.

    Raises:
        DataError: the model fails on the data, or values are missing in `stats`.
        UsageError: an exclusion means no node.
    """
    placement = place_by_config(model.graph, target, config)
    calibration = CalibrationConfig()
    if data is not None and stats is None and placement.values:
        stats = collect(
            model,
            sorted(placement.values),
            data,
            CalibrationConfig(max_samples=samples),
            on_progress=lambda done, total: on_stage("calibrating", done, total),
        )
    quantized = None
    if stats is not None and placement.values:
        quantized = quantize(model, stats, target, config, calibration)
    extremes: dict[str, tuple[float, float]] = {}
    if stats is not None:
        extremes = {name: (one.lo, one.hi) for name, one in stats.tensors.items()}
    inputs: Mapping[Use, Channels] = {}
    alone = None
    if data is not None:
        extremes |= _observe_extremes(model, data, samples, on_stage)
        if quantized is not None:
            inputs = observe_inputs(model, quantized, data, samples)
            alone = Alone(model, quantized, config, data, samples)
    return Scene(model, target, is_gpu, placement, quantized, stats, extremes, inputs, alone)


def _observe_extremes(model: Model, data: Dataset, samples: int, on_stage: OnStage) -> Extremes:
    """Of everything that is float in the main graph, whatever is not finite left out."""
    values = (value for node in model.graph.graph for value in node.outputs)
    names = [value.name for value in values if value.name and is_float(value)]
    taps = Taps(model, names, MEMORY_BYTES)
    found: dict[str, tuple[float, float]] = {}
    for batch in data.batches(ROWS, samples):
        for group in taps.run(batch.inputs, f"samples of '{data.source}'"):
            for name, values_of in group.items():
                if not isinstance(values_of, np.ndarray) or values_of.dtype.kind != "f":
                    continue
                finite = values_of[np.isfinite(values_of)]
                if finite.size:
                    lo, hi = found.get(name, (np.inf, -np.inf))
                    found[name] = (min(lo, float(finite.min())), max(hi, float(finite.max())))
        on_stage("observing", batch.first_sample + batch.count, samples)
    return found
