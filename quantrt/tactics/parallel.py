# SPDX-License-Identifier: Apache-2.0
"""Several simultaneous runs as one, to time a candidate that is tuned for throughput."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from quantrt.errors import UsageError

__all__ = ["RUNS_PER_LANE", "parallel_runs"]

RUNS_PER_LANE = 4
"""Runs that each thread makes in a row: between them nobody waits for the slowest, as in a server."""


@contextmanager
def parallel_runs(run: Callable[[], object], lanes: int) -> Iterator[Callable[[], None]]:
    """A callable that makes lanes * RUNS_PER_LANE runs on `lanes` threads and returns when all are done.

    Its time over that number is the time per run at full load.

    Args:
        run: may be called from several threads at once.
        lanes: the executor's `parallel_runs`.
    """
    if lanes < 1:
        raise UsageError("cannot run in parallel", got=f"{lanes} threads", expected="at least 1")

    def one_lane(_: int) -> None:
        for _ in range(RUNS_PER_LANE):
            run()

    with ThreadPoolExecutor(lanes, thread_name_prefix="quantrt-lane") as pool:
        yield lambda: list(pool.map(one_lane, range(lanes))).clear()
