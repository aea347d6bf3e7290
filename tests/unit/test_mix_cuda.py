# SPDX-License-Identifier: Apache-2.0
"""Builds for a GPU with a mixed candidate; the CPU stands in, and how fast a region is is made up."""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

import quantrt.mix.measure
from quantrt.assign.cost_model import TimedEngine, TimedLayer
from quantrt.assign.tables import read_tables
from quantrt.build import build
from quantrt.config import (
    AssignConfig,
    BenchConfig,
    Budget,
    BuildConfig,
    CalibrationConfig,
    ConstraintConfig,
    CudaConfig,
    DeviceConfig,
)
from quantrt.device import describe_device
from quantrt.errors import UsageError
from quantrt.gpu import gpu_named
from quantrt.model.model import Model
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program_json import program_from_model
from quantrt.report import timed_layers
from quantrt.runtime import executor as executor_module
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics import timing
from quantrt.tactics.cuda import lower
from tests.nets import net, samples, weights
from tests.programs import GPU
from tests.unit.test_mix import OUTLIERS

build_module = importlib.import_module("quantrt.build")

INPUTS = {"x": samples(24, 12)}
CONFIG = BuildConfig(
    precisions=frozenset({"fp32", "fp16", "int8"}),
    bench=BenchConfig(duration_s=0.02, max_duration_s=0.05, warmup_s=0.01, min_runs=3),
    calibration=CalibrationConfig(method="minmax"),
    device=DeviceConfig(device="cuda"),
    cuda=CudaConfig(builder_optimization_level=0, exclude_tactic_sources=("triton", "cublaslt", "cudnn")),
    budget=Budget(metric="sqnr", max_drop_ratio=2e-3),
)

real_timed_engine = timed_layers.timed_engine


def open_on_cpu(model: LibraryModel, output_names: object) -> CudaExecutor:
    program = program_from_model(model)
    return CudaExecutor(program, *specs_of(program), device="cpu")


@pytest.fixture
def model() -> Model:
    arrays = weights({"w0": (12, 40), "w1": (40, 40), "w2": (40, 40), "w3": (40, 6)})
    factors = np.ones(40, np.float32)
    factors[3] = 1000.0
    arrays["w1"][3] /= 1000.0
    return net(OUTLIERS, arrays | {"factors": factors})


@pytest.fixture(autouse=True)
def cpu_for_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU takes the part of an H200 on which a product takes 1 ms in fp32, 0.7 in fp16, 0.25 in codes."""
    lowering = partial(lower.CudaLowering, gpu=gpu_named("H200"), device="cpu")
    here = {**describe_device(with_gpu=False), "gpu": [GPU]}
    monkeypatch.setattr(lower, "CudaLowering", lowering)
    monkeypatch.setattr(executor_module, "_open_cuda", open_on_cpu)
    for module in (build_module, executor_module):
        monkeypatch.setattr(module, "check_library", lambda library, **options: None)
    monkeypatch.setattr(build_module, "describe_machine", lambda library: here)

    def timed(candidate, model, inputs, *, latency_ms) -> TimedEngine:
        names = [node.name or "" for node in model.graph.graph]
        return TimedEngine([TimedLayer((name,), latency_ms / len(names)) for name in names], latency_ms)

    def time_candidates(candidates, inputs, config, on_progress) -> Mapping[str, timing.Latency]:
        found = {}
        for name, candidate in candidates.items():
            decisions = [] if candidate.fitted is None else candidate.fitted.model.placement.decisions
            codes = sum(row.is_int8 and row.op_type == "MatMul" for row in decisions)
            each = 1.0 if candidate.spec.precision == "fp32" else 0.7
            found[name] = timing.Latency((each * (4 - codes) + 0.25 * codes,) * 32)
        return found

    monkeypatch.setattr(quantrt.mix.measure, "timed_engine", timed)
    monkeypatch.setattr(quantrt.mix.measure, "time_candidates", time_candidates)
    monkeypatch.setattr(build_module, "time_candidates", time_candidates)


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


def test_layers_that_have_to_be_codes_are_not_made_float(model: Model):
    culprit = [node.name or "" for node in model.graph.graph if node.op_type == "MatMul"][1]
    rules = ConstraintConfig(layer_precisions=(f"{culprit}:int8",))
    with pytest.raises(UsageError, match=f"'{culprit}' is not int8"):
        make(model, replace(CONFIG, constraints=rules))


def test_layers_of_a_candidate_are_watched_where_they_were_not_timed(
    model: Model, monkeypatch: pytest.MonkeyPatch
):
    seen: list[TimedEngine] = []

    def timed(candidate, model, inputs, *, latency_ms) -> TimedEngine:
        seen.append(real_timed_engine(candidate, model, inputs, latency_ms=latency_ms))
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
