# SPDX-License-Identifier: Apache-2.0
"""How much of the output's noise each layer makes: the model with one layer quantized at a time.

One graph serves every run, the flags say what is quantized. Of a model with many layers, groups of neighbours
are measured, and the noisiest group is split until the runs are used up; so the worst layers are found one by
one, and the harmless ones stay together.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quantrt.calibrate.dataset import Dataset
from quantrt.config import CompareConfig
from quantrt.quantize.qdq.switches import FLAGS, Switched
from quantrt.reference.metrics import decibels, mean_noise_ratio
from quantrt.reference.row_sets import RowSet
from quantrt.report.layer_errors.sessions import Part
from quantrt.report.subject import own_rows

__all__ = ["Damage", "Repair", "measure_damage"]

SAMPLES = 16
"""Samples that every run takes: the order of the layers shows on a few."""

RUNS = 128
"""Sets of layers that are measured."""

REPAIRS = 8
"""Up to so many of the worst layers are put back into floats, one more each time."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Repair:
    """The model with its worst layers in floats.

    Attributes:
        layers: indices of those.
        sqnr_db: of its outputs.
    """

    layers: tuple[int, ...]
    sqnr_db: float


@dataclass(frozen=True)
class Damage:
    """Noise of the outputs, as a ratio of their power: the mean over the floating-point outputs.

    Attributes:
        samples: it was measured on.
        total_ratio: with every layer quantized.
        ratios: for each set of layers that was measured, with those alone quantized; the sets are disjoint
            and hold every layer.
        repairs: the model with its worst layers put back into floats.
    """

    samples: int
    total_ratio: float
    ratios: Mapping[tuple[int, ...], float]
    repairs: tuple[Repair, ...]

    @property
    def total_db(self) -> float:
        """SQNR of the outputs with every layer quantized."""
        return decibels(self.total_ratio)

    def alone_db(self, layers: tuple[int, ...]) -> float:
        """SQNR of the outputs with a set alone quantized."""
        return decibels(self.ratios[layers])

    def share_of(self, layers: tuple[int, ...]) -> float:
        """The part of the summed noise that a set makes; NaN where there is no finite sum."""
        total = sum(self.ratios.values())
        return self.ratios[layers] / total if 0 < total < math.inf else math.nan


def measure_damage(
    switched: Switched,
    outputs: Sequence[str],
    dataset: Dataset,
    config: CompareConfig,
    *,
    limit_db: float,
    sets: Sequence[RowSet] = (),
    on_progress: Callable[[int, int | None], None] | None = None,
) -> Damage:
    """Measure layers or groups of them.

    Args:
        outputs: the floating-point outputs of the model.
        limit_db: worst layers are put back into floats until the outputs have this SQNR.
        sets: outputs whose rows have no order of their own.
    """
    runs = _Runs(switched, outputs, dataset, config, sets=sets, on_progress=on_progress)
    count = len(switched.layers)
    total = runs.noise_ratio(range(count))
    ratios = _split(count, runs)
    worst = [group[0] for group in sorted(ratios, key=lambda one: -_rank(ratios[one])) if len(group) == 1]
    repairs: list[Repair] = []
    for number in range(1, min(REPAIRS, len(worst)) + 1):
        back = tuple(worst[:number])
        ratio = runs.noise_ratio([index for index in range(count) if index not in back])
        repairs.append(Repair(back, decibels(ratio)))
        if repairs[-1].sqnr_db >= limit_db:
            break
    return Damage(runs.samples, total, ratios, tuple(repairs))


def _split(count: int, runs: _Runs) -> dict[tuple[int, ...], float]:
    """Every layer alone where there are few; else groups, the noisiest split first."""
    if count <= RUNS:
        return {(index,): runs.noise_ratio([index]) for index in range(count)}
    size = math.ceil(count / (RUNS // 2))
    groups = [tuple(range(start, min(start + size, count))) for start in range(0, count, size)]
    done: dict[tuple[int, ...], float] = {}
    heap = [(-_rank(ratio), group, ratio) for group in groups for ratio in [runs.noise_ratio(group)]]
    heapq.heapify(heap)
    while heap:
        _, group, ratio = heapq.heappop(heap)
        if len(group) == 1 or runs.count + 2 > 2 * RUNS:
            done[group] = ratio
            continue
        middle = len(group) // 2
        for half in (group[:middle], group[middle:]):
            part = runs.noise_ratio(half)
            heapq.heappush(heap, (-_rank(part), half, part))
    return dict(sorted(done.items()))


class _Runs:
    """The switched graph on a few samples that are kept, and the float outputs."""

    def __init__(
        self,
        switched: Switched,
        outputs: Sequence[str],
        dataset: Dataset,
        config: CompareConfig,
        *,
        sets: Sequence[RowSet],
        on_progress: Callable[[int, int | None], None] | None,
    ) -> None:
        self._switched = switched
        self._part = Part(switched.graph, outputs)
        self._dataset = dataset
        self._sets = sets
        self._on_progress = on_progress
        limit = min(SAMPLES, config.max_samples or SAMPLES)
        self._batches = list(dataset.batches(config.batch_size, limit))
        self.samples = sum(batch.count for batch in self._batches)
        self.count = 0
        self._floats = self._outputs(())

    def noise_ratio(self, layers: Sequence[int] | range) -> float:
        """Noise over signal power of the outputs with these layers quantized."""
        ratio = mean_noise_ratio(self._floats, self._outputs(layers), self._sets)
        self.count += 1
        if self._on_progress is not None:
            self._on_progress(self.count, None)
        return ratio

    def _outputs(self, layers: Sequence[int] | range) -> list[Arrays]:
        flags = self._switched.flags(*layers)
        return [
            own_rows(self._part.run({**batch.inputs, FLAGS: flags}), batch, self._dataset)
            for batch in self._batches
        ]


def _rank(ratio: float) -> float:
    """NaN is as bad as infinite noise."""
    return math.inf if math.isnan(ratio) else ratio
