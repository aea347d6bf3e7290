# SPDX-License-Identifier: Apache-2.0
"""A GPU at its limit of power: who slows it down, and candidates timed at the clocks that they leave."""

from __future__ import annotations

import math

import pytest

from quantrt.config import BenchConfig
from quantrt.tactics import power_limit
from quantrt.tactics.power_limit import LEAD_MS, REST_S, Led, slows_down
from quantrt.tactics.race import race
from quantrt.tactics.timing import time_interleaved

CONFIG = BenchConfig(duration_s=0.1, max_duration_s=0.3, warmup_s=0.0, min_runs=3)

LIMIT_W = 700.0
MEMORY_MS = 50.0
"""Over which the GPU takes the mean of its power."""


class Gpu:
    """Its clock falls by as much as the mean power of the last runs is above the limit."""

    def __init__(self) -> None:
        self.mean_w = 0.0

    def spend(self, watts: float, ms: float) -> None:
        kept = math.exp(-ms / MEMORY_MS)
        self.mean_w = kept * self.mean_w + (1 - kept) * watts

    def slowdown(self) -> float:
        return max(self.mean_w / LIMIT_W, 1.0)

    def sleep(self, seconds: float) -> None:
        self.spend(0.0, 1e3 * seconds)


class Run:
    """A run that takes `ms` at the full clock, and so many watts then."""

    def __init__(self, gpu: Gpu, ms: float, watts: float) -> None:
        self._gpu, self._ms, self._watts = gpu, ms, watts
        self.counts: list[int] = []

    def __call__(self) -> None:
        self.times_ms(1)

    def times_ms(self, count: int) -> list[float]:
        self.counts.append(count)
        return [self._one_ms() for _ in range(count)]

    def _one_ms(self) -> float:
        ms = self._ms * self._gpu.slowdown()
        self._gpu.spend(self._watts, ms)
        return ms


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()
    monkeypatch.setattr(power_limit.time, "sleep", gpu.sleep)
    return gpu


@pytest.mark.parametrize(
    ("watts", "expected"), [(300, False), (700, False), (712, False), (730, True), (1000, True)]
)
@pytest.mark.parametrize("ms", [0.1, 1.0, 30.0])
def test_what_takes_more_than_the_limit_slows_the_clock(gpu: Gpu, watts: float, expected: bool, ms: float):
    gpu.spend(1000.0, 1e3)  # hot from what ran before: it rests first
    assert slows_down(Run(gpu, ms, watts)) is expected


def test_a_turn_behind_a_lead_is_as_slow_as_the_candidate_makes_it(gpu: Gpu):
    run = Run(gpu, 2.0, 910.0)  # 1.3 of the limit
    gpu.sleep(REST_S)
    assert run.times_ms(3) == pytest.approx([2.0] * 3)
    gpu.sleep(REST_S)
    assert Led(run).times_ms(3) == pytest.approx([2.0 * 1.3] * 3, rel=0.01)
    assert run.counts[-1] == 3 + LEAD_MS / 2.0


def test_candidates_are_compared_at_the_clocks_that_they_leave(gpu: Gpu):
    """Codes take 0.9 of the time and 1.2 of the power: alone they are the slower ones."""
    runs = {"fp32": Run(gpu, 10.0, 700.0), "int8": Run(gpu, 9.0, 840.0)}
    short = time_interleaved(runs, CONFIG)
    assert short["int8"].median_ms < 0.95 * short["fp32"].median_ms
    found = race(runs, {"fp32"}, CONFIG)
    assert found["fp32"].median_ms == pytest.approx(10.0, rel=0.02)
    assert found["int8"].median_ms == pytest.approx(9.0 * 1.2, rel=0.02)
    assert found["int8"].rounds >= 8


def test_below_the_limit_nothing_is_led(gpu: Gpu):
    runs = {"fp32": Run(gpu, 10.0, 600.0), "int8": Run(gpu, 5.0, 650.0)}
    found = race(runs, {"fp32"}, CONFIG)
    assert {name: row.median_ms for name, row in found.items()} == {"fp32": 10.0, "int8": 5.0}
    assert max(count for run in runs.values() for count in run.counts[2:]) <= 1
