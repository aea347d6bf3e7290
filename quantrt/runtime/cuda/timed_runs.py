# SPDX-License-Identifier: Apache-2.0
"""Runs of one set of inputs with the time of every part: copies in, computation, copies out.

    begin = TimedRuns(lane, inputs)      # inputs in pinned memory, graph recorded, clocks started
    run = begin.enqueue()                # as soon as everything is enqueued
    run.wait()                           # until the outputs are there: times in ms since the beginning

Parts of one lane follow each other on its stream. On the CPU everything is done when `enqueue` returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from quantrt.runtime.cuda.lane import Lane
from quantrt.runtime.cuda.steps.recording import Recording, pinned_like
from quantrt.runtime.cuda.steps.steps import FreshMemory, OpenProgram, Values, run_steps
from quantrt.runtime.cuda.tensors import tensor_on, torch_dtype
from quantrt.runtime.query import Query

__all__ = ["TimedRun", "TimedRuns"]

Tensors = Mapping[str, torch.Tensor]


class _Moment(Protocol):
    """A point in the work of a stream."""

    def wait(self) -> None:
        """Until it is reached."""

    def since_ms(self, begin: _Moment) -> float:
        """Milliseconds from another moment to this one."""


class TimedRuns:
    """Enqueues runs of one set of inputs in one lane; for one thread at a time.

    Attributes:
        begin_s: when times began, on the host's `time.perf_counter`.

    Args:
        lane: nothing else may use it meanwhile.
        copies: whether inputs are copied to the device in every run, and outputs from it.
        spins: whether the host polls for the end of a run instead of sleeping.

    Raises:
        DataError: the program cannot take these inputs; see Lane.run.
        DeviceError: out of memory.
    """

    def __init__(self, lane: Lane, inputs: Mapping[str, np.ndarray], *, copies: bool, spins: bool) -> None:
        self._lane = lane
        self._copies = copies
        self._spins = spins
        lane.check(inputs)
        with lane.entered() as opened:
            given = {name: tensor_on(inputs[name]) for name, _ in opened.program.inputs}
            recording = lane.recording(opened, given)
            self._way: _Recorded | _Eager = (
                _Eager(opened, given) if recording is None else _Recorded(recording, given)
            )
            self._way.copy_in()
            self._way.compute()
            lane.wait()
            self._begin = self._moment()
            self._begin.wait()
            self.begin_s = time.perf_counter()

    def enqueue(self) -> TimedRun:
        """Begin one run."""
        with self._lane.entered():
            start_s = time.perf_counter()
            moments = [self._moment()]
            for part in self._parts():
                if part is None:
                    moments.append(moments[-1])
                else:
                    part()
                    moments.append(self._moment())
            end_s = time.perf_counter()
        enqueued_ms = ((start_s - self.begin_s) * 1e3, (end_s - self.begin_s) * 1e3)
        return TimedRun(self._begin, enqueued_ms, tuple(moments))

    def _parts(self) -> tuple[Callable[[], None] | None, ...]:
        way = self._way
        return (
            way.copy_in if self._copies else None,
            way.compute,
            way.copy_out if self._copies else None,
        )

    def _moment(self) -> _Moment:
        if self._lane.device.type == "cuda":
            return _DeviceMoment(spins=self._spins)
        return _HostMoment()


@dataclass(frozen=True)
class TimedRun:
    """One run that was enqueued.

    Attributes:
        enqueued_ms: when the host's call began and ended.
        moments: before the copies in, after them, after the computation, after the copies out.
    """

    begin: _Moment
    enqueued_ms: tuple[float, float]
    moments: tuple[_Moment, ...]

    def wait(self) -> Query:
        """The times of the parts since the beginning, once the run has ended."""
        self.moments[-1].wait()
        start, copied, computed, end = (moment.since_ms(self.begin) for moment in self.moments)
        return Query(
            start_enqueue_ms=self.enqueued_ms[0],
            end_enqueue_ms=self.enqueued_ms[1],
            start_h2d_ms=start,
            end_h2d_ms=copied,
            start_compute_ms=copied,
            end_compute_ms=computed,
            start_d2h_ms=computed,
            end_d2h_ms=end,
        )


class _Recorded:
    """A CUDA graph, its inputs waiting in pinned memory."""

    def __init__(self, recording: Recording, given: Tensors) -> None:
        self._recording = recording
        recording.stage(given)

    def copy_in(self) -> None:
        self._recording.copy_in()

    def compute(self) -> None:
        self._recording.replay()

    def copy_out(self) -> None:
        self._recording.unload()


class _Eager:
    """A program step by step, its inputs waiting in host memory that is pinned where there is a GPU."""

    def __init__(self, opened: OpenProgram, given: Tensors) -> None:
        self._opened = opened
        self._device = opened.assets.device
        self._host = {name: self._staged(tensor) for name, tensor in given.items()}
        self._inputs = {
            name: torch.empty(given[name].shape, dtype=torch_dtype(dtype), device=self._device)
            for name, dtype in opened.program.inputs
        }
        self._outputs: Values = {}
        self._copies: dict[str, torch.Tensor] = {}

    def copy_in(self) -> None:
        for name, tensor in self._inputs.items():
            tensor.copy_(self._host[name], non_blocking=True)

    def compute(self) -> None:
        values: Values = dict(self._inputs)
        run_steps(self._opened, values, FreshMemory(self._device))
        self._outputs = {name: values[buffer] for name, buffer, _ in self._opened.program.outputs}

    def copy_out(self) -> None:
        for name, tensor in self._outputs.items():
            known = self._copies.get(name)
            if known is None or known.shape != tensor.shape:  # of a step that reads values
                known = self._copies[name] = self._memory_for(tensor)
            known.copy_(tensor, non_blocking=True)

    def _staged(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory() if self._device.type == "cuda" else tensor

    def _memory_for(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._device.type == "cuda":
            return pinned_like(tensor.contiguous())
        return torch.empty(tensor.shape, dtype=tensor.dtype)


class _DeviceMoment:
    """An event on the current stream."""

    def __init__(self, *, spins: bool) -> None:
        self._event = torch.cuda.Event(enable_timing=True, blocking=not spins)  # type: ignore[no-untyped-call]
        self._event.record()

    def wait(self) -> None:
        self._event.synchronize()

    def since_ms(self, begin: _Moment) -> float:
        if not isinstance(begin, _DeviceMoment):
            raise TypeError("moments of two devices have no time between them")
        return float(begin._event.elapsed_time(self._event))


class _HostMoment:
    """Now: work of the CPU is done when it is asked for."""

    def __init__(self) -> None:
        self._time_s = time.perf_counter()

    def wait(self) -> None:
        """It is reached."""

    def since_ms(self, begin: _Moment) -> float:
        if not isinstance(begin, _HostMoment):
            raise TypeError("moments of two devices have no time between them")
        return (self._time_s - begin._time_s) * 1e3
