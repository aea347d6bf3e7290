# SPDX-License-Identifier: Apache-2.0
"""Outputs of a model on batches that are gone through several times: computed once, as far as they fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from quantrt.assign.accuracy.accuracy import Run
from quantrt.assign.accuracy.ahead import ahead
from quantrt.calibrate.dataset import Batch

__all__ = ["MOST_BYTES", "Again", "Replayed"]

MOST_BYTES = 256 << 20
"""Of outputs that are kept: those of classifiers all, of what paints pictures some."""

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Replayed:
    """What one model makes of the same batches, time after time.

    Args:
        run: of the model; an attribute too, for other batches.
        most_bytes: of outputs that are kept; batches beyond are computed again.
        lanes: runs that may be made at once; an attribute too.
    """

    def __init__(self, run: Run, most_bytes: int = MOST_BYTES, *, lanes: int = 1) -> None:
        self.run = run
        self.lanes = lanes
        self._room = most_bytes
        self._kept: list[dict[str, np.ndarray[Any, Any]]] = []

    def again(self) -> Again:
        """A run that is asked for the batches from the first on, in the order of all times before."""
        return Again(self)

    def at(self, place: int, inputs: Arrays) -> Arrays:
        """The outputs for the batch at this place of the order."""
        return self._kept[place] if place < len(self._kept) else self.run(inputs)

    def keep(self, place: int, outputs: Arrays) -> None:
        """For later times, while there is room."""
        size = sum(array.nbytes for array in outputs.values())
        if place == len(self._kept) and size <= self._room:
            self._room -= size
            self._kept.append({name: np.array(array) for name, array in outputs.items()})


class Again:
    """One time through the batches, which may be interrupted."""

    def __init__(self, replayed: Replayed) -> None:
        self._replayed = replayed
        self._place = 0

    def __call__(self, inputs: Arrays) -> Arrays:
        """The outputs for the next batch."""
        place = self._next()
        outputs = self._replayed.at(place, inputs)
        self._replayed.keep(place, outputs)
        return outputs

    def over(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Arrays]]:
        """The next batches, each with its outputs; see RunsAhead. The last are lost if it is left early."""
        replayed = self._replayed
        tasks = (
            ((place, batch), partial(replayed.at, place, batch.inputs))
            for batch in batches
            for place in (self._next(),)
        )
        for (place, batch), outputs in ahead(tasks, replayed.lanes):
            replayed.keep(place, outputs)
            yield batch, outputs

    def _next(self) -> int:
        self._place += 1
        return self._place - 1
