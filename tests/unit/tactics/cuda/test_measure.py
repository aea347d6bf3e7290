"""Timing by the clock of the process, which takes the place of CUDA graphs where there is no GPU."""

import time

import pytest
import torch

from quantrt.tactics.cuda.measure import FINAL_RUNS, SCREEN_RUNS, Untimed, measure
from quantrt.tactics.cuda.timing import Timing

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


def test_a_capture_that_fails_is_data(monkeypatch: pytest.MonkeyPatch):
    from quantrt.tactics.cuda import measure as module

    def make(device: torch.device, stream: object, *, flush: bool):
        def clock(run: object):
            if run is bad:
                raise RuntimeError("operation not permitted when stream is capturing\nmore")
            return module._CpuClock(run)

        return clock

    bad, good = Sleeper(0.0), Sleeper(0.0005)
    monkeypatch.setattr(module, "_clock_maker", make)
    found = measure({"bad": bad, "good": good}, device=CPU)
    assert found["bad"] == Untimed(
        "cannot be captured in a CUDA graph: operation not permitted when stream is capturing"
    )
    assert isinstance(found["good"], Timing)
