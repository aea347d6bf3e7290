# SPDX-License-Identifier: Apache-2.0
"""Runs with the times of their parts, on the CPU."""

import numpy as np
import pytest

from quantrt.errors import DataError
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.runtime.query import Query
from tests.programs import pooled_program

X = np.ones((2, 3, 4, 4), np.float32)


def times_of(count: int, *, copies: bool) -> list[Query]:
    program = pooled_program()
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    context = executor.create_context(capture=False)
    runs = context.time_runs({"x": X}, copies=copies, spins=False)
    found = [run.wait() for run in [runs.enqueue() for _ in range(count)]]
    executor.close()
    return found


def test_the_parts_of_a_run_follow_each_other_and_runs_too():
    found = times_of(3, copies=True)
    for times in found:
        moments = (times.start_h2d_ms, times.end_h2d_ms, times.end_compute_ms, times.end_d2h_ms)
        assert list(moments) == sorted(moments)
        assert times.start_compute_ms == times.end_h2d_ms
        assert times.start_d2h_ms == times.end_compute_ms
        assert times.start_enqueue_ms < times.end_enqueue_ms
        assert times.end_compute_ms > times.start_compute_ms
    ends = [times.end_d2h_ms for times in found]
    assert ends == sorted(ends)
    assert found[0].start_enqueue_ms >= 0


def test_copies_that_are_left_out_take_no_time():
    for times in times_of(3, copies=False):
        assert times.end_h2d_ms == times.start_h2d_ms
        assert times.end_d2h_ms == times.start_d2h_ms
        assert times.end_compute_ms > times.start_compute_ms


def test_inputs_are_copied_in_every_run_and_outputs_out_of_it():
    program = pooled_program()
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    context = executor.create_context(capture=False)
    runs = context.time_runs({"x": X}, copies=True, spins=False)
    want = context.run({"x": X})["y"]
    way = runs._way
    way._inputs["x"].fill_(np.nan)
    runs.enqueue().wait()
    assert np.array_equal(way._copies["y"].numpy(), want)
    executor.close()


def test_shapes_that_no_profile_admits():
    rows = [{"x": [[1, 3, 4, 4], [2, 3, 4, 4], [4, 3, 4, 4]]}]
    program = pooled_program(notes={"profiles": rows})
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    with pytest.raises(DataError, match="outside the shapes"):
        executor.create_context().time_runs({"x": np.ones((5, 3, 4, 4), np.float32)}, copies=True, spins=True)
    executor.close()
