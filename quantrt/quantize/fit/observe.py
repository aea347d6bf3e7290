# SPDX-License-Identifier: Apache-2.0
"""All that fitting has to know of a float model, from one pass over the data.

Of every sample histograms are taken. The first FIT_SAMPLES give channel means and outputs, the first SAMPLES
the extremes of channels that equalization goes by, and as many behind them the ranges of equalized values.
Where few are left behind them, the first are run once more for these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import Batch, Dataset
from quantrt.calibrate.stats import Stats
from quantrt.calibrate.taps import is_float
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.model.model import Model
from quantrt.quantize.algorithms.bias_correction import ChannelSums
from quantrt.quantize.algorithms.equalization import EdgeExtremes, Scales
from quantrt.quantize.fit.divided_ranges import DividedRanges
from quantrt.quantize.fit.equalized import (
    SAMPLES,
    WEIGHT_QMAX,
    Equalized,
    equalized_twins,
    smoothed_twins,
    wants_equalization,
)
from quantrt.quantize.fit.reference import FIT_SAMPLES, Reference, more_samples

__all__ = ["observe"]

Array = np.ndarray[Any, Any]


def observe(
    model: Model,
    names: Sequence[str],
    samples: Dataset,
    config: QuantizeConfig,
    options: CalibrationConfig,
    *,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> tuple[Stats, Reference]:
    """Statistics of the values `names`, and the float model on the first samples with its twins.

    Args:
        on_progress: gets the number of samples done and to do.

    Raises:
        UsageError: the model has no such tensor.
        DataError: no samples, a sample that does not fit, NaN or infinite values.
    """
    watch = _Watch(model, names, config, wants_equalization(samples, config, options.max_samples))
    stats = collect(model, names, samples, options, on_progress=on_progress, watcher=watch)
    twins = watch.twins(samples, options.max_samples)
    smooth = smoothed_twins(model, samples, config, twins, limit=options.max_samples)
    more = more_samples(samples, options)
    return stats, replace(watch.reference(), twins=(*twins, *smooth), more=more)


class _Watch:
    """Hands the values of a pass to all that want them."""

    def __init__(
        self, model: Model, names: Sequence[str], config: QuantizeConfig, is_equalized: bool
    ) -> None:
        graph = model.graph.graph
        made = {value.name for node in graph for value in node.outputs}
        self._model = model
        self._counted = frozenset(names)
        self._sums = ChannelSums(model.graph) if config.bias_correction else None
        self._extremes = EdgeExtremes(model.graph) if is_equalized else None
        self._scales: Scales = {}
        self._divided: DividedRanges | None = None
        floats = [value for value in graph.outputs if is_float(value)]
        self._outputs = [value.name or "" for value in floats]
        self._has_outputs = made.issuperset(self._outputs)
        self._first = 0
        self._batches: list[Batch] = []
        self._seen: list[dict[str, Array]] = []

    @property
    def names(self) -> Sequence[str]:
        """The values that any of them wants."""
        sums = () if self._sums is None else self._sums.names
        extremes = () if self._extremes is None else self._extremes.names
        outputs = self._outputs if self._has_outputs else ()
        return tuple(dict.fromkeys((*sums, *extremes, *outputs)))

    def begin(self, batch: Batch) -> None:
        """What is seen next is of this batch."""
        self._first = batch.first_sample
        if self._first < FIT_SAMPLES:
            self._batches.append(batch)
            self._seen.append({})
        if self._extremes is not None and self._first >= SAMPLES:
            self._divide(self._extremes)
        if self._divided is not None and self._first < 2 * SAMPLES:
            self._divided.begin(batch)

    def see(self, name: str, values: Array) -> None:
        """One value of the batch."""
        if self._first < FIT_SAMPLES:
            if self._sums is not None:
                self._sums.see(name, values)
            if name in self._outputs:
                self._seen[-1][name] = values
        if self._extremes is not None and self._first < SAMPLES:
            self._extremes.see(name, values)
        if self._divided is not None and self._first < 2 * SAMPLES:
            self._divided.see(name, values)

    def twins(self, samples: Dataset, limit: int | None) -> tuple[Equalized, ...]:
        """What equalization makes of the model, after the pass; runs it again where few samples were left."""
        if self._extremes is None:
            return ()
        self._divide(self._extremes)
        return equalized_twins(self._model, samples, self._scales, ranges=self._divided, limit=limit)

    def reference(self) -> Reference:
        """The model on the first samples, without twins."""
        seen = [[row[name] for name in self._outputs if name in row] for row in self._seen]
        return Reference(
            self._model.graph,
            [batch.inputs for batch in self._batches],
            None if self._sums is None else self._sums.means(),
            seen=seen if self._has_outputs else None,
        )

    def _divide(self, extremes: EdgeExtremes) -> None:
        """Choose the scales, once."""
        if self._divided is None:
            self._scales = extremes.scales(qmax=WEIGHT_QMAX)
            self._divided = DividedRanges(self._model.graph, self._scales, self._counted)
