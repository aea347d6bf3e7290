# SPDX-License-Identifier: Apache-2.0
"""Runs of a model on one batch after another, some of them at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from quantrt.calibrate.dataset import Batch

__all__ = ["RunsAhead", "ahead", "over"]

Item = TypeVar("Item")
Made = TypeVar("Made")
Outputs = Mapping[str, np.ndarray[Any, Any]]


@runtime_checkable
class RunsAhead(Protocol):
    """A run that may be made on several batches at once."""

    def over(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Outputs]]:
        """Each batch with its outputs, in their order."""


def over(
    run: Callable[[Mapping[str, np.ndarray[Any, Any]]], Outputs], batches: Iterable[Batch]
) -> Iterator[tuple[Batch, Outputs]]:
    """Each batch with its outputs, in their order; some computed ahead where the run allows it."""
    made: object = run
    if isinstance(made, RunsAhead):
        return made.over(batches)
    return ((batch, run(batch.inputs)) for batch in batches)


def ahead(tasks: Iterable[tuple[Item, Callable[[], Made]]], lanes: int) -> Iterator[tuple[Item, Made]]:
    """Every item with what its task makes, in their order.

    Args:
        tasks: are read by the caller's thread, and called by others where there is more than one lane.
        lanes: tasks at once; so many more than were asked for may have been called in the end.
    """
    if lanes == 1:
        yield from ((item, task()) for item, task in tasks)
        return
    waiting: deque[tuple[Item, Future[Made]]] = deque()
    with ThreadPoolExecutor(lanes, thread_name_prefix="quantrt-lane") as pool:
        for item, task in tasks:
            waiting.append((item, pool.submit(task)))
            if len(waiting) > lanes:
                yield _first(waiting)
        while waiting:
            yield _first(waiting)


def _first(waiting: deque[tuple[Item, Future[Made]]]) -> tuple[Item, Made]:
    item, future = waiting.popleft()
    return item, future.result()
