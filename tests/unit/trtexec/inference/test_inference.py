# SPDX-License-Identifier: Apache-2.0
"""Loops over streams: how many queries, for how long, in which order; and streams of real engines."""

import threading
from typing import Any

import numpy as np
import pytest

from quantrt.errors import DataError
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.runtime.engine import Engine
from quantrt.runtime.query import Query
from quantrt.trtexec.flags.run_settings import RunSettings
from quantrt.trtexec.inference.inference import open_streams, time_queries
from quantrt.trtexec.reports.trace import Trace
from tests.plans import LIBRARIES, make_plan
from tests.programs import cuda_plan, pooled_program
from tests.unit.trtexec.reports.test_trace import query

X = np.ones((2, 32), np.float32)


class FakeStream:
    """Every query takes 10 ms of a clock that nothing else moves."""

    def __init__(self, ahead: int = 1) -> None:
        self.ahead = ahead
        self.waiting = self.most_waiting = self.count = 0
        self.threads: set[int] = set()

    def enqueue(self) -> "FakeStream":
        self.count += 1
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        self.threads.add(threading.get_ident())
        return self

    def wait(self) -> Query:
        self.waiting -= 1
        return query(10.0 * (self.count - self.waiting - 1), compute_ms=8.5)


def settings(**fields: Any) -> RunSettings:
    return RunSettings(**{"warm_up_ms": 0.0, "duration_s": 0.0, "iterations": 1, **fields})


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"iterations": 7}, 7),
        ({"iterations": 7, "duration_s": 0.2}, 20),
        ({"iterations": 30, "duration_s": 0.2}, 30),
        ({"iterations": 5, "warm_up_ms": 100.0}, 14),
        ({"iterations": 5, "warm_up_ms": 100.0, "duration_s": 0.2}, 30),
    ],
)
def test_both_the_iterations_and_the_duration_are_reached(fields: dict[str, Any], count: int):
    stream = FakeStream()
    assert len(time_queries([stream], settings(**fields), in_threads=True)) == count
    assert stream.waiting == 0


def test_queries_are_enqueued_ahead_and_none_is_lost():
    stream = FakeStream(ahead=2)
    found = time_queries([stream], settings(iterations=5), in_threads=False)
    assert stream.most_waiting == 2
    assert len(found) == stream.count == 5


@pytest.mark.parametrize(("in_threads", "threads"), [(True, 3), (False, 1)])
def test_a_thread_per_stream_or_one_for_all(in_threads: bool, threads: int):
    streams = [FakeStream() for _ in range(3)]
    found = time_queries(streams, settings(iterations=4), in_threads=in_threads)
    assert len(found) == 12
    assert len(set().union(*(stream.threads for stream in streams))) == threads


def test_an_error_of_a_stream_ends_the_run():
    class Broken(FakeStream):
        def enqueue(self) -> FakeStream:
            raise DataError("no such shape")

    with pytest.raises(DataError, match="no such shape"):
        time_queries([Broken()], settings(duration_s=1e9), in_threads=True)


def test_idle_time_lies_between_queries():
    stream = FakeStream()
    barrier = threading.Event()
    threading.Timer(0.001, barrier.set).start()
    time_queries([stream], settings(iterations=2, idle_ms=5.0), in_threads=True)
    assert barrier.is_set()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("streams", [1, 2])
def test_streams_of_an_engine_for_a_cpu(library: str, streams: int):
    with Engine(make_plan(library)) as engine:
        wanted = settings(iterations=5, streams=streams, warm_up_ms=1.0)
        with open_streams(engine, {"x": X}, wanted) as opened:
            assert len(opened) == streams
            found = time_queries(opened, wanted, in_threads=True)
    assert len(found) >= 5 * streams
    for each in found:
        assert each.h2d_ms == each.d2h_ms == 0.0
        assert each.compute_ms == each.enqueue_ms == each.latency_ms > 0.0
    assert Trace.of(found, 1.0).timed


def test_streams_of_an_engine_for_a_gpu(monkeypatch: pytest.MonkeyPatch):
    """Its steps on the CPU; what differs is what enqueues and times them."""
    program = pooled_program()
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    monkeypatch.setattr("quantrt.runtime.engine.open_executor", lambda *args, **options: executor)
    with Engine(cuda_plan()) as engine:
        wanted = settings(iterations=4, streams=2)
        with open_streams(engine, {"x": np.ones((1, 3, 4, 4), np.float32)}, wanted) as opened:
            found = time_queries(opened, wanted, in_threads=False)
            assert {stream.ahead for stream in opened} == {2}
    assert len(found) == 8
    for each in found:
        assert each.latency_ms == pytest.approx(each.h2d_ms + each.compute_ms + each.d2h_ms)
        assert each.compute_ms > 0.0
        assert each.start_enqueue_ms >= 0.0


def test_inputs_that_the_engine_cannot_take():
    with Engine(make_plan("onnxruntime")) as engine:
        with pytest.raises(DataError, match="'x'"):
            with open_streams(engine, {"x": X[0]}, settings()):
                pass
