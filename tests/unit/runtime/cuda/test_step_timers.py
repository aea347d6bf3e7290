# SPDX-License-Identifier: Apache-2.0
"""Times by events, on a device that counts instead of computing."""

from contextlib import nullcontext

import pytest
import torch

from quantrt.runtime.cuda import step_timers
from quantrt.runtime.cuda.step_timers import GpuTimer, TimedRepeats


class Device:
    """Executes what is enqueued at once; its clock goes on by what a run takes."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.head_start_cycles: list[int] = []

    def event(self) -> "Event":
        return Event(self)

    def run(self) -> None:
        self.now_ms += 0.25


class Event:
    def __init__(self, device: Device) -> None:
        self._device = device
        self.at_ms = 0.0

    def record(self) -> None:
        self.at_ms = self._device.now_ms

    def synchronize(self) -> None:
        assert self.at_ms == self._device.now_ms, "not the last event"

    def elapsed_time(self, end: "Event") -> float:
        return end.at_ms - self.at_ms


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(step_timers, "_event", device.event)
    monkeypatch.setattr(torch.cuda, "_sleep", device.head_start_cycles.append)
    return device


def test_each_of_many_runs_is_timed_behind_one_head_start(device: Device):
    streams = []

    def on_stream():
        streams.append(device.now_ms)
        return nullcontext()

    runs = TimedRepeats(device.run, device.run, on_stream)
    runs()
    assert runs.times_ms(4) == [0.25] * 4
    assert device.now_ms == 5 * 0.25
    assert streams == [0.25]
    (cycles,) = device.head_start_cycles
    assert cycles == 4 * 150e-6 * 2e9


def test_nothing_enqueued_is_nothing_timed(device: Device):
    assert GpuTimer(0).read() == []
