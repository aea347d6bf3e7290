# SPDX-License-Identifier: Apache-2.0
"""Some samples of a dataset, in runs as large as those of all samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from quantrt.calibrate.dataset import Batch

__all__ = ["picked"]

Array = np.ndarray[Any, Any]


def picked(batches: Iterable[Batch], is_picked: Array) -> Iterator[tuple[Array, dict[str, Array]]]:
    """Places of samples in the dataset, and their inputs, of as many rows as the largest batch so far.

    Runs with fewer samples have them repeated: for another number of rows an engine may be made anew. Samples
    of other shapes than those before them begin a run of their own.

    Args:
        batches: of consecutive samples from the first on, none of them filled up.
        is_picked: by place, bool [samples].
    """
    held: list[tuple[int, dict[str, Array]]] = []
    rows = 0
    for batch in batches:
        rows = max(rows, batch.count)
        first = batch.first_sample
        for row in np.flatnonzero(is_picked[first : first + batch.count]):
            inputs = {name: array[row] for name, array in batch.inputs.items()}
            if held and _shapes(held[0][1]) != _shapes(inputs):
                yield _run(held, rows)
                held = []
            held.append((first + int(row), inputs))
            if len(held) == rows:
                yield _run(held, rows)
                held = []
    if held:
        yield _run(held, rows)


def _run(held: list[tuple[int, dict[str, Array]]], rows: int) -> tuple[Array, dict[str, Array]]:
    taken = [held[row % len(held)][1] for row in range(rows)]
    inputs = {name: np.stack([one[name] for one in taken]) for name in taken[0]}
    return np.array([place for place, _ in held]), inputs


def _shapes(inputs: dict[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in inputs.items()}
