# SPDX-License-Identifier: Apache-2.0
"""How long each step takes when steps run one by one, and each of many runs that follow each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch

from quantrt.runtime.cuda.steps.steps import Around

__all__ = ["GpuTimer", "HostTimer", "TimedRepeats", "timed_passes"]

HOST_S_PER_STEP = 150e-6
"""Enough to enqueue a step of several operators from Python, on most hosts."""

HOST_RATIO = 2.0
"""Of what the host took for the first steps of a pass: later ones may take it longer."""

STEPS_AHEAD = 64
"""Behind one head start. After about a thousand launches the driver makes the host wait for the device."""

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

    The device is kept busy until what comes is enqueued, some steps at a time, so that it never waits for the
    host between them. No step may make the host wait for the device.

    Args:
        step_count: how many steps will be timed.
        host_s: seconds that the host takes to enqueue a step.
    """

    def __init__(self, step_count: int, host_s: float = HOST_S_PER_STEP) -> None:
        self._step_count = step_count
        self._host_s = host_s
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._began = self._first_s = 0.0

    @property
    def host_s(self) -> float:
        """Seconds for a step that the next timer of the same steps needs."""
        first = min(STEPS_AHEAD, self._step_count)
        return max(self._host_s, HOST_RATIO * self._first_s / first) if first else self._host_s

    def around(self, number: int, call: Callable[[], None]) -> None:
        """Run one step between two events."""
        done = len(self._events)
        if done % STEPS_AHEAD == 0:
            ahead = min(STEPS_AHEAD, self._step_count - done)
            torch.cuda._sleep(int(ahead * self._host_s * MAX_CLOCK_HZ))  # type: ignore[no-untyped-call]
        if not done:
            self._began = time.perf_counter()
        start, end = _event(), _event()
        start.record()
        call()
        end.record()
        self._events.append((start, end))
        if len(self._events) <= STEPS_AHEAD:
            self._first_s = time.perf_counter() - self._began

    def read(self) -> list[float]:
        """One figure per step, once the device has done them all."""
        if self._events:
            self._events[-1][1].synchronize()
        return [start.elapsed_time(end) for start, end in self._events]


def timed_passes(
    run: Callable[[Around], None],
    step_count: int,
    *,
    count: int,
    is_gpu: bool,
) -> Iterator[list[float]]:
    """Milliseconds of every step, pass by pass.

    Args:
        run: a pass, which calls what it is given around each step.
    """
    host_s = HOST_S_PER_STEP
    for _ in range(count):
        if not is_gpu:
            clock = HostTimer()
            run(clock.around)
            yield clock.read()
            continue
        timer = GpuTimer(step_count, host_s)
        run(timer.around)
        yield timer.read()
        host_s = timer.host_s


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
