# SPDX-License-Identifier: Apache-2.0
"""Times of layers: of every run, by name, in an executor of their own."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quantrt.errors import DataError, InternalError
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.report.explain.gather import gather_from_runs
from quantrt.runtime.engine import Engine
from quantrt.runtime.layer_times import LayerTimes, time_layers, time_plan
from quantrt.runtime.unique_names import unique_names
from tests.plans import LIBRARIES, make_plan
from tests.unit.report.quantized_plans import IMAGES, cuda_plan_of

X = {"x": np.ones((4096, 32), np.float32)}


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_run_has_a_time_for_every_layer(library: str):
    plan = make_plan(library)
    with Engine(plan) as engine:
        found = time_layers(engine, X, runs=4, warmup_runs=2)
        want = engine.run(X)["y"]
    assert len(found.run_ms) == 4
    assert len(found.names) == len(found.times_ms) == len(set(found.names))
    assert all(len(row) == 4 for row in found.times_ms)
    assert 0 < sum(found.median_ms.values()) <= 2 * max(found.run_ms)
    assert want.shape == (4096, 32), "the engine itself runs as before"


def test_inputs_and_counts_are_checked():
    plan = make_plan("onnxruntime")
    with Engine(plan) as engine:
        with pytest.raises(DataError, match="'x'"):
            time_layers(engine, {"x": np.ones((2, 31), np.float32)}, runs=1, warmup_runs=0)
        with pytest.raises(InternalError):
            time_layers(engine, X, runs=0, warmup_runs=0)


def test_medians_are_by_name():
    found = LayerTimes(names=("a", "b"), times_ms=((1, 3, 2), (5, 5, 9)), run_ms=(9, 9, 9), method="")
    assert found.median_ms == {"a": 2, "b": 5}


def test_equal_names_are_told_apart():
    assert unique_names(["a", "b", "a", "a"]) == ["a", "b", "a#2", "a#3"]


@pytest.fixture
def cpu_for_gpu() -> Iterator[None]:
    pytest.importorskip("torch", reason="programs run in torch")
    from tests.gpu_stand_in import programs_on_cpu

    with programs_on_cpu():
        yield


def test_regions_are_timed_in_a_lane_of_their_own(cpu_for_gpu: None):
    plan = cuda_plan_of("H200")
    with Engine(plan) as engine:
        found = time_layers(engine, IMAGES, runs=2, warmup_runs=1)
        assert found.names == tuple(layer.name for layer in engine_layers(plan))
        assert all(sum(row) > 0 for row in found.times_ms)
        assert found.run_ms == pytest.approx([sum(run) for run in zip(*found.times_ms, strict=True)])
        assert engine.run(IMAGES)["y"].shape == (2, 5)
    with pytest.raises(InternalError, match="in its engine"):
        time_plan(plan, IMAGES, runs=1, warmup_runs=0)


def test_an_engine_for_a_gpu_that_is_here_has_its_busy_time(cpu_for_gpu: None, tmp_path: Path):
    from quantrt.report.explain.describe import describe_explanation

    plan = cuda_plan_of("H200")
    with Engine(plan) as engine:
        engine.save(tmp_path / "m.qrt")
        data = describe_explanation(gather_from_runs(engine, tmp_path / "m.qrt", IMAGES))
    assert data["times"]["basis"] == "measured here" and data["times"]["busy_ratio"] > 0
    assert "H200" in data["peaks"]["source"]
    assert any(row["reached_ratio"] for row in data["layers"])
