# SPDX-License-Identifier: Apache-2.0
"""How long each of several ways to compute one thing takes on a device.

First a few runs of each; then those within FINALIST_RATIO of the fastest, in turns, until there are enough.
On a GPU every candidate is a CUDA graph, so that no time of the host is in it, and the L2 cache is written
over before each run, as the layers in between do in a model. Runs of a round are enqueued one behind another
before the first is waited for: a host that is late between two of them, as with kernels being compiled beside
it, finds the GPU still busy. On a CPU the clock of the process is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from quantrt.errors import DataError, DeviceError, first_line
from quantrt.tactics.cuda.timing.timing import Timing, timing_of

__all__ = ["Untimed", "measure"]

Run = Callable[[], object]

SCREEN_RUNS = 5
FINAL_RUNS = 30
FINALIST_RATIO = 1.3
BUDGET_S = 0.25
"""For the runs of all finalists together; slow ones are run less often, but SCREEN_RUNS times at least."""
SAMPLE_US = 200.0
"""Without a flush, runs are repeated until a sample is this long, against the resolution of events."""
TICK_US = 0.5
"""Resolution of cudaEventElapsedTime, by its documentation."""
MAX_REPEATS = 64
FLUSH_RATIO = 2
"""Bytes written between two runs, over the size of the L2 cache."""


@dataclass(frozen=True)
class Untimed:
    """A candidate that could not be timed, and why."""

    reason: str


class _Clock(Protocol):
    """Times one candidate; made once for each."""

    def begin(self, count: int) -> Callable[[], list[float]]:
        """Begin `count` runs; what it returns waits for them, and tells the microseconds of each."""


def measure(
    runs: Mapping[str, Run],
    *,
    device: torch.device,
    stream: torch.cuda.Stream | None = None,
    flush: bool = True,
    final_runs: int = FINAL_RUNS,
    budget_s: float = BUDGET_S,
) -> dict[str, Timing | Untimed]:
    """Time every candidate, in the order given.

    Args:
        runs: enqueue one computation each; must have run once already, so that nothing is compiled or
            allocated for the first time.
        stream: of the GPU to run on; one for many calls, because libraries keep a workspace for each.
        flush: write over the GPU's L2 cache before each run.
        final_runs: samples of each finalist.

    Returns:
        A timing for each; those that were no finalists have few samples. Untimed for one that cannot be
        captured in a CUDA graph, or for which memory is short.
    """
    clocks: dict[str, _Clock] = {}
    found: dict[str, Timing | Untimed] = {}
    make = _clock_maker(device, stream, flush=flush)
    for name, run in runs.items():
        try:
            clocks[name] = make(run)
        except (RuntimeError, MemoryError, DataError, DeviceError) as error:  # torch's, and what runners say
            found[name] = Untimed(f"cannot be captured in a CUDA graph: {first_line(error)}")
    screened = _in_turns(clocks, SCREEN_RUNS)
    finalists = _finalists(screened)
    total_s = sum(screened[name].median_us for name in finalists) / 1e6
    count = min(final_runs, max(SCREEN_RUNS, int(budget_s / total_s))) if finalists else 0
    final = _in_turns({name: clocks[name] for name in finalists}, count)
    return {name: found[name] if name in found else final.get(name, screened[name]) for name in runs}


def _finalists(screened: Mapping[str, Timing]) -> list[str]:
    best_us = min((timing.median_us for timing in screened.values()), default=0.0)
    return [name for name, timing in screened.items() if timing.median_us <= FINALIST_RATIO * best_us]


def _in_turns(clocks: Mapping[str, _Clock], rounds: int) -> dict[str, Timing]:
    """`rounds` samples of every candidate, one of each in turn, after one that does not count."""
    samples: dict[str, list[float]] = {name: [] for name in clocks}
    for round_number in range(rounds + 1):
        begun = {name: clock.begin(1) for name, clock in clocks.items()}
        for name, wait in begun.items():
            found = wait()
            if round_number:
                samples[name] += found
    return {name: timing_of(found) for name, found in samples.items()}


def _clock_maker(
    device: torch.device, stream: torch.cuda.Stream | None, *, flush: bool
) -> Callable[[Run], _Clock]:
    if device.type != "cuda":
        return _CpuClock
    scratch = None
    if flush:
        size = FLUSH_RATIO * torch.cuda.get_device_properties(device).L2_cache_size
        scratch = torch.empty(size, dtype=torch.uint8, device=device)
    on = stream or torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return lambda run: _GraphClock(run, on, scratch)


class _CpuClock:
    def __init__(self, run: Run) -> None:
        self._run = run

    def begin(self, count: int) -> Callable[[], list[float]]:
        """See _Clock; on a CPU they are over when this returns."""
        samples = []
        for _ in range(count):
            begin_ns = time.perf_counter_ns()
            self._run()
            samples.append(max(1, time.perf_counter_ns() - begin_ns) / 1e3)
        return lambda: samples


class _GraphClock:
    """A CUDA graph of one run, or without a flush of as many as a sample needs."""

    def __init__(self, run: Run, stream: torch.cuda.Stream, scratch: torch.Tensor | None) -> None:
        self._scratch = scratch
        self._repeats = 1
        self._stream = stream
        self._graph = self._capture(run)
        if scratch is None:
            single_us = max(min(self.begin(2)()), 1.0)
            self._repeats = max(1, min(MAX_REPEATS, round(SAMPLE_US / single_us)))
            if self._repeats > 1:
                self._graph = self._capture(run)

    def _capture(self, run: Run) -> torch.cuda.CUDAGraph:
        """Capture without torch.cuda.graph, which collects garbage and empties caches each time.

        While a graph is captured torch gives nothing back of what it keeps for later, such as the memory of
        earlier graphs: below a limit there may be none left, however little is in use.
        """
        try:
            return self._captured(run)
        except (torch.OutOfMemoryError, DeviceError):
            pass  # what the run had made goes with the error
        torch.cuda.empty_cache()
        return self._captured(run)

    def _captured(self, run: Run) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for _ in range(self._repeats):
                    run()
            finally:
                graph.capture_end()
        return graph

    def begin(self, count: int) -> Callable[[], list[float]]:
        """See _Clock. The flush keeps the GPU busy while the host enqueues the events and the graph."""
        events: list[Sequence[torch.cuda.Event]] = []
        with torch.cuda.stream(self._stream):
            for _ in range(count):
                begin, end = (_event() for _ in range(2))
                if self._scratch is not None:
                    self._scratch.zero_()
                begin.record()
                self._graph.replay()
                end.record()
                events.append((begin, end))

        def wait() -> list[float]:
            self._stream.synchronize()
            spans_us = (max(begin.elapsed_time(end) * 1e3, TICK_US) for begin, end in events)
            return [span_us / self._repeats for span_us in spans_us]

        return wait


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
