# SPDX-License-Identifier: Apache-2.0
import time

import pytest

from quantrt.tactics import brief_pair
from quantrt.tactics.brief_pair import (
    FIRST_ROUNDS,
    ROUNDS,
    SOON_RATIO,
    SOON_ROUNDS,
    is_surely_faster,
    least_ms,
)


@pytest.mark.parametrize(("first", "second", "is_faster"), [(1, 2, True), (2, 1, False), (1, 1, False)])
def test_what_takes_less_in_every_round_is_surely_faster(
    monkeypatch, first: int, second: int, is_faster: bool
):
    clock = [0.0]
    monkeypatch.setattr(brief_pair.time, "perf_counter", lambda: clock[0])

    def taking(ms: int):
        def run() -> None:
            clock[0] += ms / 1e3

        return run

    assert is_surely_faster(taking(first), taking(second)) is is_faster


@pytest.mark.parametrize(
    ("first", "second", "rounds"),
    [
        (2.0 * (SOON_RATIO + 0.01), 2.0, ROUNDS),
        (2.0 * (SOON_RATIO - 0.01), 2.0, SOON_ROUNDS),
        (1.0, 2.0, SOON_ROUNDS),
        (2.0, 1.0, FIRST_ROUNDS),
    ],
)
def test_what_is_plain_is_asked_no_further(monkeypatch, first: float, second: float, rounds: int):
    clock, runs = [0.0], []
    monkeypatch.setattr(brief_pair.time, "perf_counter", lambda: clock[0])

    def taking(ms: float):
        def run() -> None:
            clock[0] += ms / 1e3
            runs.append(ms)

        return run

    assert is_surely_faster(taking(first), taking(second)) is (first < second)
    assert runs.count(second) == rounds * 3  # a turn of about 2 ms: two runs at least, behind one untimed


def test_the_fastest_run_counts(monkeypatch):
    times, clock = iter([9.0, 3.0, 1.0, 2.0]), [0.0]
    monkeypatch.setattr(brief_pair.time, "perf_counter", lambda: clock[0])

    def run() -> None:
        clock[0] += next(times) / 1e3

    assert least_ms(run, 3) == pytest.approx(1.0)  # sums of milliseconds as seconds


def test_real_runs_are_timed():
    assert is_surely_faster(lambda: None, lambda: time.sleep(0.002))
