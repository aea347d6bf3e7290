# SPDX-License-Identifier: Apache-2.0
import importlib
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import BenchConfig, BuildConfig, DeviceConfig
from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.tactics.candidates import Candidate, Spec
from quantrt.tactics.parallel import RUNS_PER_LANE
from quantrt.tactics.time_candidates import time_candidates, timed_inputs
from quantrt.tactics.timing import Latency

FREE = (TensorSpec("x", "float32", ("N", 4)),)
FIXED = (TensorSpec("x", "float32", (2, 4)),)
ROWS = {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}


def test_samples_are_repeated_to_the_batch_size():
    data = open_dataset(ROWS, FREE)
    assert timed_inputs(data, FREE, None)["x"].tolist() == ROWS["x"][:1].tolist()
    assert timed_inputs(data, FREE, 2)["x"].tolist() == ROWS["x"][:2].tolist()
    repeated = timed_inputs(data, FREE, 7)["x"]
    assert repeated.tolist() == ROWS["x"][[0, 1, 2, 0, 1, 2, 0]].tolist()


def test_a_fixed_batch_is_kept_and_another_one_refused():
    data = open_dataset(ROWS, FIXED)
    for batch_size in (None, 2):
        assert timed_inputs(data, FIXED, batch_size)["x"].shape == (2, 4)
    with pytest.raises(UsageError, match="batch size") as caught:
        timed_inputs(data, FIXED, 8)
    assert "got 8, expected 2" in str(caught.value)


def test_a_model_without_a_batch_axis_is_timed_one_by_one():
    specs = (TensorSpec("x", "float32", ("N", 4)), TensorSpec("state", "float32", (2, 1)))
    arrays = [{"x": np.ones((3, 4), np.float32), "state": np.ones((2, 1), np.float32)}]
    data = open_dataset(arrays, specs)
    assert timed_inputs(data, specs, None)["x"].shape == (3, 4)
    with pytest.raises(UsageError):
        timed_inputs(data, specs, 8)


class Sleeper:
    """An executor whose runs take a while; `most` is how many ran at once."""

    parallel_runs = 3

    def __init__(self) -> None:
        self.running = self.most = 0

    def prepare(self, inputs):
        return partial(self.run, inputs)

    def run(self, inputs):
        self.running += 1
        self.most = max(self.most, self.running)
        time.sleep(0.004)
        self.running -= 1
        return {}


@pytest.mark.parametrize(
    ("hint", "lanes", "parts"), [("latency", 1, 1), ("throughput", 3, 3 * RUNS_PER_LANE)]
)
def test_for_throughput_as_many_runs_as_the_library_takes_are_timed_together(
    hint: str, lanes: int, parts: int, monkeypatch: pytest.MonkeyPatch
):
    def race(runs, floats, config, on_progress, *, halves, staying, on_left):
        for run in runs.values():
            run()
        on_left("onnxruntime fp32", Latency((24.0,) * 2))
        return {name: Latency((12.0,) * 3) for name in runs}

    monkeypatch.setattr("quantrt.tactics.time_candidates.race", race)
    executor = Sleeper()
    model = LibraryModel("openvino", b"", {})
    candidates = {
        f"{library} fp32": Candidate(Spec(library, "fp32"), model, ExecOptions(), executor, None)
        for library in ("openvino", "onnxruntime")
    }
    config, left = BuildConfig(device=DeviceConfig(hint=hint)), {}
    latencies = time_candidates(
        candidates, {}, config, lambda done, total: None, on_left=lambda name, one: left.update({name: one})
    )
    assert executor.most == lanes
    assert latencies["openvino fp32"].median_ms == 12.0 / parts
    assert left["onnxruntime fp32"].samples_ms == (24.0 / parts,) * 2


class Device:
    """An executor with a clock of its own, on which a run takes 2 ms."""

    parallel_runs = 1

    def __init__(self) -> None:
        self.runs = 0

    def prepare_timed(self, inputs):
        return self

    def __call__(self):
        self.runs += 1

    def times_ms(self, count):
        self.runs += count
        return [2.0] * count


@pytest.mark.parametrize("hint", ["latency", "throughput"])
def test_a_device_that_times_itself_gets_a_part_of_the_time(hint: str):
    executor = Device()
    candidate = Candidate(Spec("cuda", "fp32"), LibraryModel("cuda", b"", {}), ExecOptions(), executor, None)
    config = BuildConfig(
        device=DeviceConfig(hint=hint),
        bench=BenchConfig(duration_s=15.0, max_duration_s=60.0, warmup_s=0.0, min_runs=3),
    )
    latencies = time_candidates({"cuda fp32": candidate}, {}, config, lambda done, total: None)
    assert set(latencies["cuda fp32"].samples_ms) == {2.0}
    assert len(latencies["cuda fp32"].samples_ms) == pytest.approx(250, abs=10)
    assert executor.runs > len(latencies["cuda fp32"].samples_ms)


@pytest.mark.parametrize(
    ("bench", "seconds"),
    [(BenchConfig(), (0.375, 6.0)), (BenchConfig(duration_s=8.0, max_duration_s=8.0), (1.0, 1.0))],
)
def test_by_the_hosts_clock_a_search_has_an_eighth_of_the_seconds(monkeypatch, bench, seconds):
    """And a tenth of those at most, but no less than that eighth."""
    seen = []

    def race(runs, floats, config, on_progress, *, halves, staying, on_left):
        seen.append((config.duration_s, config.max_duration_s))
        return {}

    monkeypatch.setattr(importlib.import_module("quantrt.tactics.time_candidates"), "race", race)
    executor = SimpleNamespace(prepare=lambda inputs: lambda: None)
    candidate = Candidate(
        Spec("openvino", "fp32"), LibraryModel("openvino", b"", {}), ExecOptions(), executor, None
    )
    time_candidates({"openvino fp32": candidate}, {}, BuildConfig(bench=bench), lambda done, total: None)
    assert seen == [pytest.approx(seconds)]


def test_weights_in_4_bits_and_whose_time_is_wanted_stay(monkeypatch: pytest.MonkeyPatch):
    seen = []

    def race(runs, floats, config, on_progress, *, halves, staying, on_left):
        seen.append(staying)
        return {}

    monkeypatch.setattr("quantrt.tactics.time_candidates.race", race)
    executor, model = SimpleNamespace(prepare=lambda inputs: lambda: None), LibraryModel("openvino", b"", {})
    candidates = {
        precision: Candidate(Spec("onnxruntime", precision), model, ExecOptions(), executor, None)
        for precision in ("fp32", "int8", "int4")
    }
    time_candidates(candidates, {}, BuildConfig(), lambda done, total: None)
    time_candidates(candidates, {}, BuildConfig(), lambda done, total: None, staying=["int8"])
    assert seen == [{"int4"}, {"int4", "int8"}]
