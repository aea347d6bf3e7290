# SPDX-License-Identifier: Apache-2.0
"""Run the float model over the data once and keep a histogram of every tapped tensor.

Each sample runs alone, unless the model insists on a batch size: ONNX Runtime's results may depend on the
batch in the last bits, as means over tokens do, and statistics must not. Larger batches are hardly faster on
a CPU.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from quantrt.calibrate.casts import not_finite
from quantrt.calibrate.dataset import Batch, Dataset
from quantrt.calibrate.histogram import Histogram
from quantrt.calibrate.sample_hash import EMPTY_HASH, add_hashes, hash_sample
from quantrt.calibrate.stats import Stats, TensorStats, load_stats, save_stats, stats_notes
from quantrt.calibrate.taps import Taps
from quantrt.config import CalibrationConfig
from quantrt.errors import DataError
from quantrt.model.model import Model

__all__ = ["Watcher", "collect"]

logger = logging.getLogger(__name__)

SAVE_EVERY_S = 10.0

OnProgress = Callable[[int, int | None], None]


class Watcher(Protocol):
    """Who else looks at the values of a pass, while they are there: at those that are floats."""

    @property
    def names(self) -> Sequence[str]:
        """The values that it wants to see beside those whose statistics are taken."""

    def begin(self, batch: Batch) -> None:
        """What is seen next is of this batch."""

    def see(self, name: str, values: npt.NDArray[np.floating]) -> None:
        """One value of the batch, rows that pad it among it."""


def collect(
    model: Model,
    names: Sequence[str],
    dataset: Dataset,
    config: CalibrationConfig,
    *,
    resume: Path | None = None,
    on_progress: OnProgress | None = None,
    watcher: Watcher | None = None,
) -> Stats:
    """Statistics of the float tensors `names` over the samples of `dataset`.

    The result does not depend on the order of the samples or on config.batch_size, bit for bit. Memory does
    not grow with their number: half a megabyte per tensor, and activations up to config.memory_mb.

    Args:
        names: inputs, outputs and values between nodes of the main graph. Tensors that are no floats are
            left out.
        resume: where progress is kept every ten seconds. What a former run of the same model, data and
            names left there is continued; a complete run removes it.
        on_progress: gets the number of samples done and to do.
        watcher: sees every sample of this run; none of those that a former one had done.

    Raises:
        UsageError: the model has no such tensor.
        DataError: no samples, a sample that does not fit, NaN or infinite values.
    """
    watched = () if watcher is None else watcher.names
    taps = Taps(model, (*names, *watched), config.memory_mb << 20)
    counted = frozenset(names)
    progress = _start(model, taps, dataset, config, resume)
    skipped = progress.samples
    total = _total(dataset, config.max_samples)
    saved_at = time.monotonic()
    for batch in dataset.batches(1, config.max_samples):
        if batch.first_sample < skipped:
            continue
        if watcher is not None:
            watcher.begin(batch)
        for name, values in _tapped(taps, batch, dataset):
            if name in counted:
                _count(progress, name, values, batch, dataset)
            if watcher is not None:
                watcher.see(name, values)
        _hash(progress, batch, dataset)
        if on_progress is not None:
            on_progress(progress.samples, total)
        if resume is not None and time.monotonic() - saved_at >= SAVE_EVERY_S:
            save_stats(progress.stats(model, dataset), resume)
            saved_at = time.monotonic()
    stats = progress.stats(model, dataset)
    if resume is not None:
        resume.unlink(missing_ok=True)
    return stats


@dataclass
class _Progress:
    """What has been seen so far."""

    histograms: dict[str, Histogram] = field(default_factory=dict)
    samples: int = 0
    data_hash: str = EMPTY_HASH

    def stats(self, model: Model, dataset: Dataset) -> Stats:
        tensors = {name: TensorStats.from_histogram(histogram) for name, histogram in self.histograms.items()}
        return Stats(
            tensors=dict(sorted(tensors.items())),
            samples=self.samples,
            data_hash=self.data_hash,
            fingerprint=model.fingerprint,
            is_random=dataset.is_random,
            notes=(*stats_notes(tensors), *dataset.notes),
        )


def _start(
    model: Model, taps: Taps, dataset: Dataset, config: CalibrationConfig, resume: Path | None
) -> _Progress:
    """Where to go on from: nothing seen, or what an earlier run of the same thing left."""
    if resume is None or not resume.exists():
        return _Progress()
    try:
        partial = load_stats(resume)
    except DataError as error:
        logger.warning("starting anew: %s", error.message)
        return _Progress()
    reason = _why_not(partial, model, taps, dataset, config)
    if reason is not None:
        logger.warning("starting anew: '%s' is of %s", resume, reason)
        return _Progress()
    logger.info("going on after %d samples of '%s'", partial.samples, dataset.source)
    histograms = {name: tensor.to_histogram() for name, tensor in partial.tensors.items()}
    return _Progress(histograms, partial.samples, partial.data_hash)


def _why_not(
    partial: Stats, model: Model, taps: Taps, dataset: Dataset, config: CalibrationConfig
) -> str | None:
    """What keeps `partial` from being the beginning of this run; None when nothing does."""
    if partial.fingerprint != model.fingerprint:
        return "another model"
    same_names = set(taps.names) - taps.untyped <= set(partial.tensors) <= set(taps.names)
    if not same_names or partial.is_random != dataset.is_random:
        return "other tensors or data"
    if config.max_samples is not None and partial.samples > config.max_samples:
        return "more samples"
    seen, count = EMPTY_HASH, 0
    for sample in itertools.islice(dataset.samples(), partial.samples):
        seen, count = add_hashes(seen, hash_sample(sample.inputs)), count + 1
    return None if (seen, count) == (partial.data_hash, partial.samples) else "other data"


def _tapped(taps: Taps, batch: Batch, dataset: Dataset) -> Iterator[tuple[str, npt.NDArray[np.floating]]]:
    """Run one batch; what it gives of each value that is floats."""
    try:
        for group in taps.run(batch.inputs, _where(batch, dataset)):
            for name in list(group):
                values = group.pop(name)  # dropped as soon as it was looked at
                if isinstance(values, np.ndarray) and values.dtype.kind == "f":
                    yield name, values
    except DataError as error:
        if not dataset.is_random:
            raise
        shapes = (
            f"{name} {'x'.join(map(str, array.shape)) or 'scalar'}" for name, array in batch.inputs.items()
        )
        raise DataError(
            f"{error.message}: {', '.join(shapes)}",
            got=error.got,
            hint="--calib-data with real samples: sizes that the model leaves open are made up here",
        ) from error


def _count(
    progress: _Progress, name: str, values: npt.NDArray[np.floating], batch: Batch, dataset: Dataset
) -> None:
    """Count one value of a batch; padding is not counted."""
    if batch.count < (dataset.layout.fixed_batch or 1) and values.ndim:
        values = values[: batch.count] if len(values) == dataset.layout.fixed_batch else values
    bad = progress.histograms.setdefault(name, Histogram()).add(values)
    if bad:
        raise not_finite(f"tensor '{name}'", _where(batch, dataset, values), bad, values.size)


def _hash(progress: _Progress, batch: Batch, dataset: Dataset) -> None:
    """Add the samples of a batch to what was seen."""
    for row in range(batch.count):
        sample = batch.inputs
        if dataset.layout.is_batched:
            sample = {name: array[row : row + 1] for name, array in sample.items()}
        progress.data_hash = add_hashes(progress.data_hash, hash_sample(sample))
    progress.samples += batch.count


def _where(batch: Batch, dataset: Dataset, values: npt.NDArray[np.floating] | None = None) -> str:
    """How to name a batch; its first sample with a value that is not finite when the rows tell."""
    index, last = (dataset.index_of(at + batch.first_sample) for at in (0, batch.count - 1))
    if (
        values is not None
        and batch.count > 1
        and values.ndim
        and len(values) in (batch.count, dataset.layout.fixed_batch)
    ):
        row = int(np.argmin(np.isfinite(values).reshape(len(values), -1).all(axis=1)))
        index = last = dataset.index_of(batch.first_sample + row)
    samples = f"sample {index}" if index == last else f"samples {index} to {last}"
    return f"{samples} of '{dataset.source}'"


def _total(dataset: Dataset, max_samples: int | None) -> int | None:
    known = dataset.sample_count
    if known is None or max_samples is None:
        return known if max_samples is None else None
    return min(known, max_samples)
