# SPDX-License-Identifier: Apache-2.0
"""Parallel runs are simultaneous, all done when the call returns, and their errors are seen."""

import threading

import pytest

from quantrt.errors import UsageError
from quantrt.tactics.parallel import RUNS_PER_LANE, parallel_runs


def test_every_call_makes_all_its_runs_on_as_many_threads():
    barrier = threading.Barrier(3, timeout=30.0)  # breaks unless three threads are in `run` at once
    done: list[int] = []

    def run() -> None:
        barrier.wait()
        done.append(threading.get_ident())

    with parallel_runs(run, 3) as run_all:
        for calls in (1, 2):
            run_all()
            assert len(done) == calls * 3 * RUNS_PER_LANE
    assert len(set(done)) == 3


def test_an_error_in_a_lane_is_raised():
    def fail() -> None:
        raise KeyError("lane")

    with parallel_runs(fail, 2) as run_all, pytest.raises(KeyError, match="lane"):
        run_all()


def test_no_lanes_is_an_error():
    with pytest.raises(UsageError, match="parallel"), parallel_runs(lambda: None, 0):
        pass
