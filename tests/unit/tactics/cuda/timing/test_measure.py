"""Timing by the clock of the process, which takes the place of CUDA graphs where there is no GPU."""

import contextlib
import time
import weakref

import pytest
import torch

from quantrt.errors import DeviceError
from quantrt.tactics.cuda.timing.measure import FINAL_RUNS, SCREEN_RUNS, Untimed, measure
from quantrt.tactics.cuda.timing.timing import Timing

CPU = torch.device("cpu")


class Sleeper:
    """A run that takes a known time and counts."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.runs = 0

    def __call__(self) -> None:
        self.runs += 1
        time.sleep(self.seconds)


def test_times_are_microseconds_of_one_run():
    timing = measure({"sleeps": Sleeper(0.002)}, device=CPU)["sleeps"]
    assert isinstance(timing, Timing)
    assert 2000 <= timing.p20_us <= timing.median_us <= timing.p80_us
    assert timing.median_us < 20_000
    assert timing.samples == FINAL_RUNS


def test_only_finalists_are_run_often():
    runs = {"fast": Sleeper(0.001), "close": Sleeper(0.001), "slow": Sleeper(0.02)}
    found = measure(runs, device=CPU)
    assert list(found) == ["fast", "close", "slow"]
    assert found["slow"].samples == SCREEN_RUNS
    assert found["fast"].samples == FINAL_RUNS
    assert runs["slow"].runs == SCREEN_RUNS + 1
    assert found["fast"].median_us < found["slow"].median_us


def test_slow_candidates_are_run_less_often():
    run = Sleeper(0.01)
    timing = measure({"slow": run}, device=CPU, budget_s=0.08)["slow"]
    assert SCREEN_RUNS <= timing.samples <= 8
    assert run.runs == SCREEN_RUNS + timing.samples + 2


def test_nothing_to_time():
    assert measure({}, device=CPU) == {}


@pytest.mark.parametrize("kind", [RuntimeError, DeviceError])
def test_a_capture_that_fails_is_data(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]):
    from quantrt.tactics.cuda.timing import measure as module

    def make(device: torch.device, stream: object, *, flush: bool):
        def clock(run: object):
            if run is bad:
                raise kind("operation not permitted when stream is capturing\nmore")
            return module._CpuClock(run)

        return clock

    bad, good = Sleeper(0.0), Sleeper(0.0005)
    monkeypatch.setattr(module, "_clock_maker", make)
    found = measure({"bad": bad, "good": good}, device=CPU)
    assert found["bad"] == Untimed(
        "cannot be captured in a CUDA graph: operation not permitted when stream is capturing"
    )
    assert isinstance(found["good"], Timing)


class FakeCuda:
    """Writes down what a GPU would be asked to do; every replay takes 30 us for each captured run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.captured = 0
        self.now_us = 0.0
        fake = self

        class Graph:
            def capture_begin(self, *, capture_error_mode: str) -> None:
                fake.log.append(f"begin {capture_error_mode}")
                fake.captured = 0

            def capture_end(self) -> None:
                fake.log.append("end")

            def replay(self) -> None:
                fake.log.append("replay")
                fake.now_us += 30.0 * fake.captured

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                fake.log.append("record")
                self.at_us = fake.now_us

            def elapsed_time(self, end: "Event") -> float:
                return (end.at_us - self.at_us) / 1e3

        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "current")
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: fake.log.append("empty"))

    device = CPU

    def wait_stream(self, other: object) -> None:
        self.log.append("wait")

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def zero_(self) -> None:
        self.log.append("flush")
        self.now_us += 1000.0

    def run(self) -> None:
        self.captured += 1


def test_on_a_gpu_the_cache_is_flushed_before_the_clock_starts(monkeypatch: pytest.MonkeyPatch):
    from quantrt.tactics.cuda.timing import measure as module

    cuda = FakeCuda(monkeypatch)
    clock = module._GraphClock(cuda.run, cuda, cuda)
    assert cuda.log == ["wait", "begin thread_local", "end"]
    cuda.log.clear()
    assert clock.begin(2)() == pytest.approx([30.0, 30.0])
    assert cuda.log == ["flush", "record", "replay", "record"] * 2 + ["synchronize"]


def test_on_a_gpu_a_round_is_enqueued_before_it_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    from quantrt.tactics.cuda.timing import measure as module

    cuda = FakeCuda(monkeypatch)
    clocks = {name: module._GraphClock(cuda.run, cuda, cuda) for name in ("one", "other")}
    cuda.log.clear()
    found = module._in_turns(clocks, 2)
    assert [timing.samples for timing in found.values()] == [2, 2]
    assert found["other"].median_us == pytest.approx(30.0)
    enqueued = ["flush", "record", "replay", "record"] * 2
    assert cuda.log == [*enqueued, "synchronize", "synchronize"] * 3


def test_on_a_gpu_short_runs_are_repeated_when_nothing_is_flushed(monkeypatch: pytest.MonkeyPatch):
    from quantrt.tactics.cuda.timing import measure as module

    cuda = FakeCuda(monkeypatch)
    clock = module._GraphClock(cuda.run, cuda, None)
    assert cuda.captured == round(module.SAMPLE_US / 30.0)
    assert clock.begin(1)() == pytest.approx([30.0])
    assert "flush" not in cuda.log


def test_on_a_gpu_a_capture_always_ends(monkeypatch: pytest.MonkeyPatch):
    from quantrt.tactics.cuda.timing import measure as module

    def run() -> None:
        raise RuntimeError("not permitted")

    cuda = FakeCuda(monkeypatch)
    with pytest.raises(RuntimeError, match="not permitted"):
        module._GraphClock(run, cuda, cuda)
    assert cuda.log[-1] == "end"


@pytest.mark.parametrize("is_told_by_runner", [False, True])
def test_on_a_gpu_a_capture_without_room_is_tried_once_more(
    monkeypatch: pytest.MonkeyPatch, is_told_by_runner: bool
):
    from quantrt.tactics.cuda.timing import measure as module

    def run() -> None:
        if "empty" not in cuda.log:
            raise DeviceError("no room") if is_told_by_runner else torch.OutOfMemoryError("no room")
        cuda.run()

    cuda = FakeCuda(monkeypatch)
    clock = module._GraphClock(run, cuda, cuda)
    assert cuda.log == ["wait", "begin thread_local", "end", "empty", "wait", "begin thread_local", "end"]
    assert clock.begin(1)() == pytest.approx([30.0])


def test_on_a_gpu_what_a_capture_without_room_had_made_is_gone_when_memory_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
):
    from quantrt.tactics.cuda.timing import measure as module

    made: list[weakref.ref[torch.Tensor]] = []
    cuda = FakeCuda(monkeypatch)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive.append(made[0]() is not None))
    alive: list[bool] = []

    def run() -> None:
        result = torch.zeros(3)
        made.append(weakref.ref(result))
        try:
            raise torch.OutOfMemoryError("no room")
        except torch.OutOfMemoryError as error:
            raise DeviceError("no room for the norm") from error

    with pytest.raises(DeviceError, match="norm"):
        module._GraphClock(run, cuda, cuda)
    assert alive == [False]


def test_an_event_that_did_not_tick_counts_as_one_tick(monkeypatch: pytest.MonkeyPatch):
    from quantrt.tactics.cuda.timing import measure as module

    cuda = FakeCuda(monkeypatch)
    clock = module._GraphClock(lambda: None, cuda, cuda)
    assert clock.begin(1)() == [module.TICK_US]
