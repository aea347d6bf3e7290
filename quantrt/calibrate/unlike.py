# SPDX-License-Identifier: Apache-2.0
"""Samples whose values are far beyond those of all others: a damaged pixel, another unit, no normalization.

One of them decides a whole range. It also makes most of the noise that range methods are compared by, so that
clipping it looks bad, and all other samples are left with a few codes. So such samples are found in the data
before a model runs on them, told with index, input and value, and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quantrt.calibrate.dataset import Dataset
from quantrt.calibrate.records import Sample

__all__ = ["Unlike", "find_unlike", "without_unlike"]

UNLIKE_RATIO = 10.0
"""Times the USUAL part of the samples' largest magnitudes from which on a sample is unlike them. Frames of
speech, pictures and log-mel spectra of the real data that QuantRT is tested on have 1.0 to 1.3 at most."""

USUAL = 0.98
"""Part of the samples that are taken as usual: so few are left out at most."""

LEAST_SAMPLES = 16
"""With fewer nobody knows what is usual."""

MOST_NAMED = 5
"""Samples that a note names."""


@dataclass(frozen=True)
class Unlike:
    """A sample that is unlike the others.

    Attributes:
        index: in the data.
        name: of the input in which it is the most so.
        value: the largest magnitude there.
        usual: what USUAL of the samples do not exceed there.
    """

    index: int
    name: str
    value: float
    usual: float

    def __str__(self) -> str:
        return f"sample {self.index} ('{self.name}' reaches {self.value:.4g}, others {self.usual:.4g})"


def find_unlike(dataset: Dataset, max_samples: int | None = None) -> tuple[Unlike, ...]:
    """The samples in which an input of floats is UNLIKE_RATIO times as large as it usually is, in order.

    Args:
        max_samples: look at so many of the first; None for all.

    Raises:
        DataError: a sample does not fit the model; there is none.
    """
    largest: dict[str, list[float]] = {}
    for several in dataset.first(max_samples):
        for name, row in _largest(several, is_batched=dataset.layout.is_batched).items():
            largest.setdefault(name, []).extend(row)
    found: dict[int, Unlike] = {}
    for name, row in largest.items():
        values = np.asarray(row)
        usual = float(np.quantile(values, USUAL, method="lower"))
        if len(values) < LEAST_SAMPLES or usual == 0.0:
            continue
        for index in map(int, np.flatnonzero(values > UNLIKE_RATIO * usual)):
            one = Unlike(index, name, float(values[index]), usual)
            if index not in found or one.value / usual > found[index].value / found[index].usual:
                found[index] = one
    return tuple(found[index] for index in sorted(found))


def without_unlike(dataset: Dataset, max_samples: int | None = None) -> Dataset:
    """The dataset without them, which its notes tell; the same one where there are none.

    Pictures, random values and what can be read once are taken as they are.
    """
    found = find_unlike(dataset, max_samples) if dataset.is_open else ()
    return dataset.without({one.index for one in found}, _told(found)) if found else dataset


def _largest(several: Sample, *, is_batched: bool) -> dict[str, list[float]]:
    """Largest magnitude of every input of floats, for each sample."""
    found = {}
    for name, array in several.inputs.items():
        if array.dtype.kind == "f" and array.size:
            rows = array.reshape(several.count, -1) if is_batched else array.reshape(1, -1)
            found[name] = np.maximum(rows.max(1), -rows.min(1)).astype(np.float64).tolist()
    return found


def _told(found: Sequence[Unlike]) -> str:
    named = ", ".join(map(str, found[:MOST_NAMED]))
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    it = "it is" if len(found) == 1 else "they are"
    return f"unlike all others: {named}{more}; {it} left out (--keep-unlike takes all)"
