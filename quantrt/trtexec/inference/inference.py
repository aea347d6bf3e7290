# SPDX-License-Identifier: Apache-2.0
"""Timed inferences on one or more streams of an engine, as many and for as long as they are asked for."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import numpy as np

from quantrt.errors import InternalError
from quantrt.runtime.engine import Context, Engine
from quantrt.runtime.query import Query
from quantrt.trtexec.flags.run_settings import RunSettings

__all__ = ["Pending", "Stream", "open_streams", "time_queries"]

AHEAD = 2
"""Queries of one stream of a GPU that are enqueued before the first is waited for, so that it never idles."""


class Pending(Protocol):
    """A query that was enqueued."""

    def wait(self) -> Query:
        """Its times, once it has ended."""


class Stream(Protocol):
    """One stream of inferences; for one thread at a time.

    Attributes:
        ahead: queries to enqueue before the first is waited for.
    """

    ahead: int

    def enqueue(self) -> Pending:
        """Begin one query."""


@contextmanager
def open_streams(
    engine: Engine, inputs: Mapping[str, np.ndarray], settings: RunSettings
) -> Iterator[tuple[Stream, ...]]:
    """The streams that are asked for, each in a context of its own in which the inputs ran once.

    Raises:
        DataError: the engine cannot take these inputs.
        DeviceError: out of memory.
    """
    with ExitStack() as stack:
        if engine.plan.model.library == "cuda":
            yield _open_gpu_streams(engine, inputs, settings, stack)
        else:
            contexts = [stack.enter_context(engine.create_context()) for _ in range(settings.streams)]
            for context in contexts:
                context.run(inputs)
            begin_s = time.perf_counter()
            yield tuple(_CpuStream(context, inputs, begin_s) for context in contexts)


def time_queries(streams: Sequence[Stream], settings: RunSettings, *, in_threads: bool) -> list[Query]:
    """Enqueue queries until both the iterations and the duration are reached, the warm-up not counted.

    An endless duration ends with an interrupt of the keyboard.

    Args:
        in_threads: a thread for each stream; otherwise one serves all in turns.
    """
    stop = threading.Event()
    groups = [[stream] for stream in streams] if in_threads else [list(streams)]
    start = threading.Barrier(len(groups))  # all streams compete from the first query on
    with ThreadPoolExecutor(len(groups)) as pool:
        futures = [pool.submit(_loop, group, settings, start, stop.is_set) for group in groups]
        try:
            return [query for future in futures for query in future.result()]
        except KeyboardInterrupt:
            if settings.duration_s >= 0:
                raise
            stop.set()
            return [query for future in futures for query in future.result()]
        finally:
            stop.set()


def _loop(
    streams: Sequence[Stream],
    settings: RunSettings,
    start: threading.Barrier,
    is_stopped: Callable[[], bool],
) -> list[Query]:
    """What one thread does."""
    start.wait()
    until_ms = settings.duration_s * 1e3 + settings.warm_up_ms if settings.duration_s >= 0 else float("inf")
    pending: list[deque[Pending]] = [deque() for _ in streams]
    found: list[Query] = []
    elapsed_ms, rounds, warm_up_rounds = 0.0, 0, 0
    while not is_stopped() and (rounds < settings.iterations + warm_up_rounds or elapsed_ms < until_ms):
        rounds += 1
        for stream, waiting in zip(streams, pending, strict=True):
            waiting.append(stream.enqueue())
        for stream, waiting in zip(streams, pending, strict=True):
            if len(waiting) >= stream.ahead:
                found.append(waiting.popleft().wait())
                elapsed_ms = max(elapsed_ms, found[-1].end_d2h_ms)
        if elapsed_ms < settings.warm_up_ms:
            warm_up_rounds += bool(elapsed_ms)
        elif settings.idle_ms:
            time.sleep(settings.idle_ms / 1e3)
    return found + [query.wait() for waiting in pending for query in waiting]


class _Done:
    """A query that ended when it was enqueued."""

    def __init__(self, query: Query) -> None:
        self._query = query

    def wait(self) -> Query:
        return self._query


class _CpuStream:
    """Calls on the CPU: nothing is copied, and a call computes."""

    ahead = 1

    def __init__(self, context: Context, inputs: Mapping[str, np.ndarray], begin_s: float) -> None:
        self._context = context
        self._inputs = inputs
        self._begin_s = begin_s

    def enqueue(self) -> Pending:
        start_s = time.perf_counter()
        self._context.run(self._inputs)
        end_s = time.perf_counter()
        start_ms, end_ms = ((moment_s - self._begin_s) * 1e3 for moment_s in (start_s, end_s))
        return _Done(
            Query(
                start_enqueue_ms=start_ms,
                end_enqueue_ms=end_ms,
                start_h2d_ms=start_ms,
                end_h2d_ms=start_ms,
                start_compute_ms=start_ms,
                end_compute_ms=end_ms,
                start_d2h_ms=end_ms,
                end_d2h_ms=end_ms,
            )
        )


class _GpuStream:
    """Runs of a lane, enqueued ahead."""

    ahead = AHEAD

    def __init__(self, runs: Any, begin_s: float) -> None:
        self._runs = runs
        self._shift_ms = (runs.begin_s - begin_s) * 1e3

    def enqueue(self) -> Pending:
        return _GpuPending(self._runs.enqueue(), self._shift_ms)


class _GpuPending:
    def __init__(self, run: Any, shift_ms: float) -> None:
        self._run = run
        self._shift_ms = shift_ms

    def wait(self) -> Query:
        query: Query = self._run.wait()
        return query.shifted(self._shift_ms)


def _open_gpu_streams(
    engine: Engine, inputs: Mapping[str, np.ndarray], settings: RunSettings, stack: ExitStack
) -> tuple[Stream, ...]:
    from quantrt.runtime.cuda.executor import CudaExecutor  # torch is optional

    executor = engine.executor
    if not isinstance(executor, CudaExecutor):
        raise InternalError("an engine for a GPU has another executor", got=type(executor).__name__)
    all_runs = []
    for _ in range(settings.streams):
        context = executor.create_context(capture=settings.captures)
        stack.callback(context.close)
        all_runs.append(context.time_runs(inputs, copies=settings.copies, spins=settings.spins))
    begin_s = max(runs.begin_s for runs in all_runs)
    return tuple(_GpuStream(runs, begin_s) for runs in all_runs)
