# SPDX-License-Identifier: Apache-2.0
"""How long each step takes when steps run one by one, and each of many runs that follow each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

__all__ = ["GpuTimer", "HostTimer", "TimedRepeats"]

HOST_S_PER_STEP = 150e-6
"""Enough to enqueue a step of several operators from Python."""

MAX_CLOCK_HZ = 2e9
"""About the highest clock of data center GPUs: 1.98 GHz on an H200."""


class HostTimer:
    """Milliseconds of each step on the CPU."""

    def __init__(self) -> None:
        self._latencies_ms: list[float] = []

    def around(self, number: int, call: Callable[[], None]) -> None:
        """Run and time one step."""
        start = time.perf_counter()
        call()
        self._latencies_ms.append((time.perf_counter() - start) * 1e3)

    def read(self) -> list[float]:
        """One figure per step."""
        return self._latencies_ms


class GpuTimer:
    """Milliseconds between the events around each step; a step that launches nothing takes about none.

    The device is kept busy until everything is enqueued, so that it never waits for the host between steps.

    Args:
        step_count: how many steps will be timed.
    """

    def __init__(self, step_count: int) -> None:
        self._head_start_cycles = int(step_count * HOST_S_PER_STEP * MAX_CLOCK_HZ)
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def around(self, number: int, call: Callable[[], None]) -> None:
        """Run one step between two events."""
        if not self._events:
            torch.cuda._sleep(self._head_start_cycles)  # type: ignore[no-untyped-call]
        start, end = _event(), _event()
        start.record()
        call()
        end.record()
        self._events.append((start, end))

    def read(self) -> list[float]:
        """One figure per step, once the device has done them all."""
        if self._events:
            self._events[-1][1].synchronize()
        return [start.elapsed_time(end) for start, end in self._events]


class TimedRepeats:
    """One run on a GPU that can tell by events how long each of many took.

    Args:
        run: once, until its outputs are there.
        enqueue: once, on the stream that is current.
        on_stream: makes the stream of these runs the current one.
    """

    def __init__(
        self,
        run: Callable[[], object],
        enqueue: Callable[[], None],
        on_stream: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._run = run
        self._enqueue = enqueue
        self._on_stream = on_stream

    def __call__(self) -> object:
        """Run once."""
        return self._run()

    def times_ms(self, count: int) -> list[float]:
        """Milliseconds of each of `count` runs, enqueued one behind the other before the first begins."""
        with self._on_stream():
            timer = GpuTimer(count)
            for number in range(count):
                timer.around(number, self._enqueue)
            return timer.read()


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
