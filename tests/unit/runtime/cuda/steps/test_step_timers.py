# SPDX-License-Identifier: Apache-2.0
"""Times by events, on a device that counts instead of computing."""

from contextlib import nullcontext

import pytest
import torch

from quantrt.runtime.cuda.steps import step_timers
from quantrt.runtime.cuda.steps.step_timers import GpuTimer, TimedRepeats, timed_passes
from quantrt.runtime.cuda.steps.steps import Around


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
    timer = GpuTimer(0)
    assert timer.read() == []
    assert timer.host_s == 150e-6


def test_many_steps_have_a_head_start_for_each_64(device: Device):
    timer = GpuTimer(150)
    for number in range(150):
        timer.around(number, device.run)
    assert timer.read() == [0.25] * 150
    assert device.head_start_cycles == [int(steps * 150e-6 * 2e9) for steps in (64, 64, 22)]


def test_a_slow_host_has_a_longer_head_start_in_the_next_pass(
    device: Device, monkeypatch: pytest.MonkeyPatch
):
    now_s = 0.0

    def slow_step() -> None:
        nonlocal now_s
        now_s += 1e-3
        device.run()

    monkeypatch.setattr(step_timers.time, "perf_counter", lambda: now_s)

    def run(around: Around) -> None:
        for number in range(100):
            around(number, slow_step)

    assert list(timed_passes(run, 100, count=3, is_gpu=True)) == [[0.25] * 100] * 3
    first, last = 64 * 2e9, 36 * 2e9
    assert device.head_start_cycles == pytest.approx(
        [150e-6 * first, 150e-6 * last, 2e-3 * first, 2e-3 * last, 2e-3 * first, 2e-3 * last], rel=1e-6
    )


def test_a_pass_on_the_host_is_timed_by_its_clock():
    passes = timed_passes(lambda around: around(0, lambda: None), 1, count=2, is_gpu=False)
    assert [len(row) for row in passes] == [1, 1]
