# SPDX-License-Identifier: Apache-2.0
"""Recordings: one per set of shapes, the least recently used makes room, inputs and outputs stay in place.

There is no GPU here: what stands for a CUDA graph runs the steps again, in the same arena, when replayed.
"""

import types
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch

from quantrt.errors import DataError, DeviceError
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.runtime.cuda.lane import MAX_RECORDINGS
from quantrt.runtime.cuda.steps import recording as recording_module
from quantrt.runtime.cuda.steps.steps import run_steps
from tests.programs import node_step, nodes_of, pooled_program, pooled_reference


class Graph:
    """Runs the steps in the arena; its outputs are always the same tensors."""

    def __init__(self, opened, inputs, memory):
        self.opened, self.inputs, self.memory = opened, inputs, memory
        self.replays, self.outputs = 0, {}
        self.replay()

    def replay(self):
        values = dict(self.inputs)
        run_steps(self.opened, values, self.memory)
        self.replays += 1
        for name, buffer, _ in self.opened.program.outputs:
            if name in self.outputs:
                self.outputs[name].copy_(values[buffer])
            else:
                self.outputs[name] = recording_module._kept(values[buffer], self.inputs)

    def reset(self):
        self.memory = None


@pytest.fixture
def graphs(monkeypatch):
    made = []

    def capture(opened, inputs, memory, copies):
        made.append(Graph(opened, inputs, memory))
        return made[-1], made[-1].outputs, 512

    stream = types.SimpleNamespace(synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(recording_module, "_capture", capture)
    monkeypatch.setattr(recording_module, "pinned_like", torch.empty_like)
    return made


def recording_executor(program=None) -> CudaExecutor:
    program = program or pooled_program("float16")
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    executor._records = True
    return executor


def batch(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((n, 2, 4, 4)).astype(np.float32)


def test_each_set_of_shapes_is_recorded_once(graphs, rng):
    executor = recording_executor()
    for n in (1, 3, 1, 1, 3):
        x = batch(n, rng)
        y = executor.run({"x": x})["y"]
        np.testing.assert_allclose(y, pooled_reference(x.astype(np.float16)), rtol=0, atol=2e-3)
    assert (
        executor.compiled_shapes == (((1, 2, 4, 4),), ((3, 2, 4, 4),)) or len(executor.compiled_shapes) == 2
    )
    assert [graph.replays for graph in graphs] == [1 + 3, 1 + 2]


def test_results_do_not_change_with_the_next_run(graphs, rng):
    executor = recording_executor()
    x, other = batch(2, rng), batch(2, rng)
    first = executor.run({"x": x})["y"]
    kept = first.copy()
    executor.run({"x": other})
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_tensors_are_copied_or_lent(graphs, dtype, rng):
    executor = recording_executor(pooled_program("float16", outputs=(("y", "y", dtype),)))
    x, other = (torch.from_numpy(batch(2, rng)) for _ in range(2))
    copied = executor.run_device({"x": x})["y"]
    lent = executor.run_device({"x": x}, copies=False)["y"]
    kept = copied.clone()
    assert torch.equal(lent, kept)
    executor.run_device({"x": other}, copies=False)
    assert torch.equal(copied, kept)
    # What is cast for the caller is not the recording's own memory.
    assert torch.equal(lent, kept) == (dtype == "float32")


def test_what_lies_where_the_graph_reads_it_is_not_copied(graphs, rng, monkeypatch):
    context = recording_executor(pooled_program("float16", outputs=(("y", "y", "float16"),))).create_context()
    context._lane._records = True
    x = context.device_inputs({"x": (2, 2, 4, 4)})["x"]
    values = batch(2, rng)
    x.copy_(torch.from_numpy(values))

    def copy(*unused, **options):
        raise AssertionError("a copy")

    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    monkeypatch.setattr(Graph, "replay", lambda graph: None)
    for given in (x, torch.from_dlpack(x)):
        y = context.run_device({"x": given}, copies=False)["y"]
        assert y.data_ptr() == graphs[0].outputs["y"].data_ptr()
    with pytest.raises(AssertionError, match="a copy"):
        context.run_device({"x": x.clone()}, copies=False)
    monkeypatch.undo()
    assert len(graphs) == 1


def test_what_is_put_there_is_what_runs(graphs, rng):
    context = recording_executor().create_context()
    context._lane._records = True
    inputs = context.device_inputs({"x": (2, 2, 4, 4)})
    for _ in range(2):
        values = batch(2, rng).astype(np.float16)
        inputs["x"].copy_(torch.from_numpy(values))
        y = context.run_device(inputs, copies=False)["y"]
        np.testing.assert_allclose(y.numpy(), pooled_reference(values), rtol=0, atol=2e-3)
    assert torch.equal(inputs["x"], torch.from_numpy(values))


def test_the_least_recently_used_makes_room(graphs, rng):
    executor = recording_executor()
    for n in range(1, MAX_RECORDINGS + 1):
        executor.run({"x": batch(n, rng)})
    executor.run({"x": batch(1, rng)})
    executor.run({"x": batch(MAX_RECORDINGS + 1, rng)})
    held = [shapes[0][0] for shapes in executor.compiled_shapes]
    assert len(held) == MAX_RECORDINGS
    assert 2 not in held
    assert 1 in held
    assert graphs[1].memory is None  # freed


def test_a_prepared_run_survives_that_its_recording_made_room(graphs, rng):
    executor = recording_executor()
    run = executor.prepare({"x": batch(1, rng)})
    for n in range(2, MAX_RECORDINGS + 3):
        executor.run({"x": batch(n, rng)})
    run()
    assert graphs[-1].inputs["x"].shape[0] == 1


def test_contexts_record_for_themselves_and_share_weights(graphs, rng):
    executor = recording_executor()
    context = executor.create_context()
    x = batch(2, rng)
    np.testing.assert_array_equal(context.run({"x": x})["y"], executor.run({"x": x})["y"])
    assert len(graphs) == 2
    assert len(executor.memory_report()["recordings"]) == 2
    assert len(executor.compiled_shapes) == 1
    context.close()
    assert len(executor.memory_report()["recordings"]) == 1
    executor.close()
    assert all(graph.memory is None for graph in graphs)


def test_memory_is_reported(graphs, rng):
    executor = recording_executor()
    executor.run({"x": batch(2, rng)})
    report = executor.memory_report()
    assert report["pool_bytes"] == 512
    assert report["input_bytes"] == 2 * 2 * 16 * 2
    assert report["recordings"][0]["shapes"] == [[2, 2, 4, 4]]


def test_a_step_that_cannot_run_leaves_no_recording(graphs, rng):
    executor = recording_executor()
    with pytest.raises(DataError, match="region of pool"):
        executor.run({"x": np.zeros((4,), np.float32)})
    assert executor.compiled_shapes == ()
    executor.run({"x": batch(1, rng)})


class Streams:
    """In the place of OwnStream: on whose stream the lane's work was, in its order."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self.lent = types.SimpleNamespace(cuda_stream=7)

    @contextmanager
    def current(self):
        self.places.append("own")
        yield

    def at_caller(self):
        self.places.append("caller")
        return self.lent

    def wait(self) -> None:
        self.places.append("wait")


def test_runs_that_do_not_wait_are_on_the_callers_stream(graphs, rng, monkeypatch):
    executor, streams = recording_executor(), Streams()
    x = batch(2, rng)
    executor.run({"x": x})
    (lane,) = executor._lanes
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(lane, "_stream", streams)
    enqueue = executor.prepare({"x": x}, waits=False)
    assert streams.places == ["own", "wait"]
    enqueue()
    executor.run_device({"x": torch.from_numpy(x)})
    assert streams.places[2:] == ["caller", "caller"]
    executor.run_device({"x": torch.from_numpy(batch(3, rng))})  # recorded before it runs
    assert streams.places[4:] == ["caller", "own", "caller"]
    executor.run({"x": x})
    assert streams.places[7:] == ["own", "wait"]
    assert [recording._streams for recording in lane.recordings.values()] == [{7}, {7}]


def test_programs_that_read_values_are_not_recorded():
    step = node_step("nodes", ["n"], ["x"], ["y"], compute="float32", outputs=["int64"], reads_values=True)
    nodes = nodes_of("g (float[N] x) => (int64[A, B] y) { [n] y = NonZero (x) }")
    program = pooled_program(steps=(step,), nodes=nodes, outputs=(("y", "y", "int64"),))
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    assert not executor._records
    assert executor.run({"x": np.array([0, 2, 3], np.float32)})["y"].tolist() == [[1, 2]]


def test_the_steps_own_error_is_told_rather_than_that_of_ending_the_recording():
    def fail() -> None:
        try:
            raise DataError("region 'r' cannot run float [3]", got="operation not permitted")
        finally:
            raise RuntimeError("capture was invalidated")

    with pytest.raises(RuntimeError) as error:
        fail()
    told = recording_module._cannot_record(error.value)
    assert isinstance(told, DeviceError)
    assert "region 'r'" in told.message
    assert told.got == "operation not permitted"
    other = recording_module._cannot_record(RuntimeError("no room\nmore"))
    assert other.got == "no room"
