# SPDX-License-Identifier: Apache-2.0
"""What the accuracy of candidates is measured on, and in runs of which size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from quantrt.assign.accuracy.accuracy import Accuracy, Run, measure_accuracy
from quantrt.assign.accuracy.metric import Metric
from quantrt.assign.accuracy.replayed import MOST_BYTES, Replayed
from quantrt.assign.accuracy.spared import spared_accuracy
from quantrt.calibrate.dataset import Batch, Dataset
from quantrt.config import BuildConfig
from quantrt.ir.profile import at_shapes, read_profiles
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.model import Model
from quantrt.reference.row_sets import RowSet, row_sets

__all__ = ["Checked"]

BATCH_SIZE = 8

LEAST_SPARED = 1000
"""Samples from which on the float model need not run on all: fewer take little time."""


@dataclass(frozen=True)
class Checked:
    """What accuracy is measured on.

    Attributes:
        name: for the report.
        data: None when there is nothing that means anything.
        max_samples: None for all.
        batch_size: rows of every run, the last ones filled up; None where any number can run.
        sets: outputs whose rows have no order of their own.
    """

    name: str
    data: Dataset | None
    max_samples: int | None = None
    batch_size: int | None = None
    sets: tuple[RowSet, ...] = ()

    @classmethod
    def choose(
        cls, truth: Dataset | None, samples: Dataset | None, config: BuildConfig, model: Model
    ) -> Checked:
        """Validation data if there are any, else real calibration samples.

        With profiles, in the batches that kernels are chosen at: those no profile refuses.
        """
        sets = row_sets(model.graph.graph)
        if truth is not None:
            return cls("validation data", truth, None, _batch_size(truth, config, model.inputs), sets)
        if samples is None or samples.is_random:
            return cls("nothing: no data", None)
        batch_size = _batch_size(samples, config, model.inputs)
        return cls("calibration samples", samples, config.calibration.max_samples, batch_size, sets)

    def measure(
        self,
        metric: Metric,
        floats: Replayed,
        run: Run,
        on_progress: Callable[[int, int | None], None],
        *,
        max_drop_ratio: float = math.inf,
        is_spared: bool = False,
        lanes: int = 1,
    ) -> Accuracy | None:
        """A candidate's accuracy beside that of the float model; None without data.

        Args:
            lanes: runs of the candidate that may be made at once.
            on_progress: called with (samples done, samples in all or None).
            max_drop_ratio: what is surely worse need not be measured to the end.
            is_spared: whether it is enough to know that the drop is no more, for which the float model has to
                run on a part of many samples alone.
        """
        if self.data is None:
            return None
        is_spared = is_spared and metric.margins is not None and self._has_many
        candidate = Replayed(run, MOST_BYTES if is_spared else 0, lanes=lanes)
        if is_spared:
            accuracy = spared_accuracy(
                metric, lambda: self.batches(on_progress), floats, candidate, max_drop_ratio=max_drop_ratio
            )
            if accuracy is not None:
                return accuracy
        return measure_accuracy(
            metric,
            self.batches(on_progress),
            floats.again(),
            candidate.again(),
            fixed_batch=self.batch_size,
            max_drop_ratio=max_drop_ratio,
            sets=self.sets,
        )

    @property
    def _has_many(self) -> bool:
        """Whether there are so many samples, any number of which can run."""
        data = self.data
        if data is None or data.sample_count is None or not data.layout.is_batched:
            return False
        return self.batch_size is None and self._total(data.sample_count) >= LEAST_SPARED

    def _total(self, sample_count: int) -> int:
        return sample_count if self.max_samples is None else min(sample_count, self.max_samples)

    def batches(self, on_progress: Callable[[int, int | None], None]) -> Iterator[Batch]:
        """What is run one after the other; nothing without data."""
        data = self.data
        if data is None:
            return
        total = None if data.sample_count is None else self._total(data.sample_count)
        for batch in data.batches(self.batch_size or BATCH_SIZE, self.max_samples):
            yield batch if self.batch_size is None else _filled(batch, self.batch_size)
            on_progress(batch.first_sample + batch.count, total)


def _batch_size(data: Dataset, config: BuildConfig, specs: Sequence[TensorSpec]) -> int | None:
    """The size the model insists on, or that of the first profile's best shapes."""
    profiles = read_profiles(config.cuda.profiles, specs)
    if data.layout.fixed_batch is not None or not (profiles and data.layout.is_batched):
        return data.layout.fixed_batch
    return next(iter(profiles[0].best.values()))[0]


def _filled(batch: Batch, rows: int) -> Batch:
    """The batch with its samples repeated up to so many rows."""
    shapes = {name: (rows, *array.shape[1:]) for name, array in batch.inputs.items()}
    return replace(batch, inputs=at_shapes(batch.inputs, shapes))
