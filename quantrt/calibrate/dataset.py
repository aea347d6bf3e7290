# SPDX-License-Identifier: Apache-2.0
"""Samples for a model, wherever they come from, in batches of equal shapes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quantrt.calibrate.readers.random import random_records
from quantrt.calibrate.readers.sources import Preprocess, open_source
from quantrt.calibrate.records import Array, Layout, Sample, Source, read_record
from quantrt.calibrate.sample_hash import EMPTY_HASH, add_hashes, hash_sample
from quantrt.errors import DataError, UsageError
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["Batch", "Dataset", "Preprocess", "open_dataset", "random_dataset"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """Consecutive samples of equal shapes.

    Attributes:
        inputs: by name, ready to feed. When the model insists on a batch size they are padded to it with
            repeated samples: rows from `count` on are no samples of their own.
        labels: by name ("labels" when there is one array), `count` rows; empty without labels.
        first_sample: index of the first sample in the dataset.
        count: number of samples.
    """

    inputs: dict[str, Array]
    labels: dict[str, Array]
    first_sample: int
    count: int


class Dataset:
    """Samples that fit one model; can be read any number of times unless the source is a generator.

    Attributes:
        source: what to call it in messages and reports.
        layout: whether and how samples can be stacked.
        is_random: the samples are random numbers.
        left_out: indices of samples in the source that are none of these.
        remarks: why, one sentence each; they are among the notes too.
        is_open: values may be anything, and can be read again.
    """

    def __init__(
        self,
        source: Source,
        specs: Sequence[TensorSpec],
        *,
        is_random: bool = False,
        left_out: Iterable[int] = (),
        remarks: Iterable[str] = (),
    ) -> None:
        self._source = source
        self._specs = tuple(specs)
        self.remarks = tuple(remarks)
        self._notes = set(self.remarks)
        self.left_out = frozenset(left_out)
        self.is_open = source.is_open and not is_random
        self.source = source.name
        self.layout = Layout.of(specs)
        self.is_random = is_random

    @property
    def sample_count(self) -> int | None:
        """Number of samples; None when that takes reading them."""
        return None if self._source.count is None else self._source.count - len(self.left_out)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the samples read so far, such as a cast."""
        return tuple(sorted(self._notes))

    def __len__(self) -> int:
        """Number of samples, where known; a TypeError otherwise, as for any iterable without length."""
        if self.sample_count is None:
            raise TypeError(f"the number of samples in '{self.source}' is not known before reading it")
        return self.sample_count

    def __bool__(self) -> bool:
        """True: a dataset is not its length."""
        return True

    def without(self, indices: Iterable[int], note: str) -> Dataset:
        """The same without some samples, and why."""
        return Dataset(
            self._source,
            self._specs,
            is_random=self.is_random,
            left_out=self.left_out.union(indices),
            remarks=(*self.remarks, note),
        )

    def index_of(self, position: int) -> int:
        """The index in the source of the sample at a position among those that are not left out."""
        for index in sorted(self.left_out):
            position += index <= position
        return position

    def samples(self) -> Iterator[Sample]:
        """Every sample in order, each alone.

        Raises:
            DataError: a sample does not fit the model; there is none.
        """
        for several in self.records():
            yield from (several.rows(row, row + 1) for row in range(several.count))

    def batches(self, batch_size: int, max_samples: int | None = None) -> Iterator[Batch]:
        """Consecutive samples of equal shapes, stacked up to `batch_size`.

        A model with a fixed batch size gets exactly that. Samples of other shapes than their neighbours,
        and those of models without a batch axis, come alone.

        Raises:
            DataError: a sample does not fit the model; there is none.
        """
        limit = self.layout.fixed_batch or (batch_size if self.layout.is_batched else 1)
        held: list[Sample] = []
        done = 0
        for several in self.first(max_samples):
            if held and _shapes(several) != _shapes(held[0]):
                yield self._batch(held, done)
                done, held = done + _count(held), []
            row = 0
            while row < several.count:
                last = min(row + limit - _count(held), several.count)
                held.append(several.rows(row, last))
                row = last
                if _count(held) == limit:
                    yield self._batch(held, done)
                    done, held = done + _count(held), []
        if held:
            yield self._batch(held, done)

    @property
    def data_hash(self) -> str:
        """Hash of all samples as a multiset, hexadecimal; reads all of them."""
        total = EMPTY_HASH
        for sample in self.samples():
            total = add_hashes(total, hash_sample(sample.inputs))
        return total

    def records(self) -> Iterator[Sample]:
        """Every sample in order, those of a record together; see `samples`."""
        found, index = False, 0
        for record in self._source.records():
            before = len(self._notes)
            several = read_record(record, self._specs, self.layout, self._notes)
            for part in _parts(several, [at - index for at in self.left_out]):
                found = True
                yield part
            index += several.count
            if len(self._notes) != before:
                logger.info("%s", "; ".join(self.notes))
        if not found:
            raise DataError(
                f"there are no samples in '{self.source}'", hint="one sample or more along its first axis"
            )

    def first(self, max_samples: int | None) -> Iterator[Sample]:
        """Records up to so many samples, none read beyond; all of them with None."""
        left = max_samples
        if left == 0:
            return
        for several in self.records():
            yield several if left is None else several.rows(0, min(left, several.count))
            left = None if left is None else left - several.count
            if left is not None and left <= 0:
                return

    def _batch(self, held: list[Sample], first: int) -> Batch:
        count = _count(held)
        padding = (self.layout.fixed_batch or count) - count
        held = held + [held[0].rows(0, 1)] * padding if self.layout.is_batched else held
        labels = _joined([sample.labels for sample in held])
        return Batch(
            _joined([sample.inputs for sample in held]),
            {name: array[:count] for name, array in labels.items()},
            first,
            count,
        )


def open_dataset(
    source: str | Path | Iterable[Any] | Callable[[], Iterable[Any]] | Mapping[str, npt.ArrayLike],
    inputs: Sequence[TensorSpec],
    *,
    preprocess: str | Preprocess | None = None,
    labels: str | Path | None = None,
) -> Dataset:
    """The samples at `source` for a model with these inputs.

    Args:
        source: path of a .npz or .npy file, of a folder of those, of a folder or .zip of images; or a
            mapping of arrays, one per input, whose first axis counts samples; or an iterable of dicts
            (of arrays for a model with one input), each a sample or a batch; or a function that gives one.
        preprocess: for images: a text such as "resize=256,crop=224,mean=imagenet", "module:function", or a
            callable.
        labels: a CSV of file and label, a .npy of labels, "filename" for the number file names start with, or
            "folder" for the place of their folder among all.

    Raises:
        UsageError: there is nothing at the path, or the options do not go together.
        DataError: the data do not fit the inputs.
    """
    if not inputs:
        raise UsageError("cannot read data for a model without inputs")
    return Dataset(open_source(source, inputs, preprocess, labels), inputs)


def random_dataset(inputs: Sequence[TensorSpec], samples: int, seed: int) -> Dataset:
    """Random samples: standard normal floats, small whole numbers; free sizes are 1.

    They show that a model runs and how fast. Ranges from them mean nothing, so statistics are marked.
    """
    layout = Layout.of(inputs)
    source = Source(
        f"random data, seed {seed}", lambda: random_records(inputs, layout, samples, seed), samples
    )
    return Dataset(source, inputs, is_random=True)


def _parts(several: Sample, left_out: Sequence[int]) -> Iterator[Sample]:
    """The rows of a record around those that are left out."""
    ends = sorted(at for at in left_out if 0 <= at < several.count)
    for first, last in zip([0, *(at + 1 for at in ends)], [*ends, several.count], strict=True):
        if first < last:
            yield several.rows(first, last)


def _count(held: Sequence[Sample]) -> int:
    return sum(sample.count for sample in held)


def _joined(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Along axis 0; of one part that part, as its rows lie one behind the other anyway."""
    if len(parts) == 1:
        return {name: np.asarray(array, order="C") for name, array in parts[0].items()}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _shapes(sample: Sample) -> list[tuple[int, ...]]:
    """Of one sample, for inputs with a batch axis."""
    return [array.shape[1:] for array in sample.inputs.values()]
