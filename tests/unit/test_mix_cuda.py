# SPDX-License-Identifier: Apache-2.0
"""Builds for a GPU with a mixed candidate; the CPU stands in, and how fast a region is is made up."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

import quantrt.mix.measure
from quantrt.assign.tables.cost_model import TimedEngine
from quantrt.assign.tables.tables import read_tables
from quantrt.build import build
from quantrt.config import (
    AssignConfig,
    Budget,
    BuildConfig,
    CalibrationConfig,
    ConstraintConfig,
    DeviceConfig,
)
from quantrt.errors import UsageError
from quantrt.model.model import Model
from quantrt.report.engine_layers import timed
from tests.gpu_stand_in import BRIEF, REFERENCE_ALONE, stand_in_for_gpu
from tests.made_up_times import made_up_times
from tests.nets import samples
from tests.unit.test_mix import outlier_model

INPUTS = {"x": samples(24, 12)}
CONFIG = BuildConfig(
    precisions=frozenset({"fp32", "fp16", "int8"}),
    bench=BRIEF,
    calibration=CalibrationConfig(method="minmax"),
    device=DeviceConfig(device="cuda"),
    cuda=REFERENCE_ALONE,
    budget=Budget(metric="sqnr", max_drop_ratio=2e-3),
)

real_timed_engine = timed.timed_engine


@pytest.fixture
def model() -> Model:
    return outlier_model()


@pytest.fixture(autouse=True)
def stand_in() -> Iterator[None]:
    with stand_in_for_gpu(), made_up_times():
        yield


def make(model: Model, config: BuildConfig = CONFIG):
    return build(model, config=config, calibration=INPUTS, validation=INPUTS)


def products(engine) -> list[str]:
    return [layer.precision for layer in engine.plan.layers if layer.op_type == "MatMul"]


def test_the_culprit_is_fp16_and_the_rest_in_codes(model: Model, tmp_path: Path):
    path = tmp_path / "t.json"
    config = replace(CONFIG, assign=AssignConfig(tables=str(path)))
    with make(model, config) as engine:
        report = engine.plan.report
        rows = {row["name"]: row for row in report["candidates"]}
        assert report["verdict"]["shipped"] == "cuda int8+fp16 mixed"
        assert rows["cuda int8+fp16"]["status"] == "over budget"
        assert products(engine) == ["int8", "fp16", "int8", "int8"]
        got = engine.run({"x": INPUTS["x"]})["y"]
        assert np.isfinite(got).all()
    tables = read_tables(path)
    assert tables.library == "cuda"
    assert tables.sizes is not None
    assert tables.sizes.bytes_of["MatMul_3"] == {"fp32": 40 * 40 * 2, "int8": pytest.approx(40 * 40, rel=0.5)}
    worst = max(tables.damages, key=lambda name: tables.damages[name]["int8"])
    assert worst == [region.name for region in tables.regions][1]


def test_codes_that_are_inside_the_budget_are_not_mixed(model: Model):
    with make(model, replace(CONFIG, budget=Budget(metric="cosine", max_drop_ratio=1.0))) as engine:
        assert engine.plan.report["verdict"]["shipped"] == "cuda int8+fp16"
        assert engine.plan.report["mixed"]["rounds"] == []


def test_fp8_is_mixed_where_it_is_the_faster_one(model: Model):
    budget = Budget(metric="sqnr", max_drop_ratio=1e-3)
    config = replace(CONFIG, precisions=frozenset({"fp32", "fp16", "fp8"}), budget=budget)
    with make(model, config) as engine:
        report = engine.plan.report
        assert report["verdict"]["shipped"] == "cuda fp8+fp16 mixed"
        rows = {row["name"]: row for row in report["candidates"]}
        assert rows["cuda fp8+fp16"]["status"] == "over budget"
        assert rows["cuda fp8+fp16 mixed"]["accuracy"]["drop_ratio"] <= 1e-3
        assert {"fp8", "fp16"} == set(products(engine))


def test_int8_is_mixed_where_fp8_is_inside_the_budget_and_slower(model: Model):
    config = replace(
        CONFIG,
        precisions=frozenset({"fp32", "fp16", "int8", "fp8"}),
        budget=Budget(metric="sqnr", max_drop_ratio=5e-3),
    )
    with make(model, config) as engine:
        report = engine.plan.report
        rows = {row["name"]: row for row in report["candidates"]}
        assert report["verdict"]["shipped"] == "cuda int8+fp16 mixed"
        assert rows["cuda int8+fp16"]["status"] == "over budget"
        assert products(engine) == ["int8", "fp16", "int8", "int8"]
    with make(model, replace(config, assign=AssignConfig(mixed=False))) as engine:
        assert engine.plan.report["verdict"]["shipped"] == "cuda fp8+fp16"


def test_layers_that_have_to_be_codes_are_not_made_float(model: Model):
    culprit = [node.name or "" for node in model.graph.graph if node.op_type == "MatMul"][1]
    rules = ConstraintConfig(layer_precisions=(f"{culprit}:int8",))
    with pytest.raises(UsageError, match=f"'{culprit}' is not int8"):
        make(model, replace(CONFIG, constraints=rules))


def test_layers_of_a_candidate_are_watched_where_they_were_not_timed(
    model: Model, monkeypatch: pytest.MonkeyPatch
):
    seen: list[TimedEngine] = []

    def timed(candidate, model, inputs, *, latency_ms, sessions, watched) -> TimedEngine:
        seen.append(real_timed_engine(candidate, model, inputs, latency_ms=latency_ms, sessions=sessions))
        return seen[-1]

    monkeypatch.setattr(quantrt.mix.measure, "timed_engine", timed)
    make(model).close()
    assert len(seen) == 2
    codes, floats = seen
    for engine in seen:
        nodes = [node for layer in engine.layers for node in layer.nodes]
        assert sum("MatMul" in node for node in nodes) == 4
        assert sum(layer.time_ms for layer in engine.layers) > 0
    assert any(dtype == "int8" for layer in codes.layers for _, _, dtype in layer.reads)
    assert not any(dtype == "int8" for layer in floats.layers for _, _, dtype in layer.reads)
