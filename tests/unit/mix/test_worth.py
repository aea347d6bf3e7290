# SPDX-License-Identifier: Apache-2.0
"""When a mix is tried though all of the codes are inside the budget; times are made up."""

import importlib

import pytest

import quantrt.mix.measure
from quantrt.assign.cost_model import TimedEngine, TimedLayer
from quantrt.build import build
from quantrt.config import BenchConfig, Budget, BuildConfig, CalibrationConfig, DeviceConfig
from quantrt.tactics.timing import Latency
from tests.nets import samples
from tests.outlier_net import outlier_model

INPUTS = {"x": samples(24, 12)}
CONFIG = BuildConfig(
    precisions=frozenset({"fp32", "int8"}),
    bench=BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3),
    calibration=CalibrationConfig(method="minmax"),
    device=DeviceConfig(libraries=("onnxruntime",)),
    budget=Budget(metric="cosine", max_drop_ratio=1.0),
)


@pytest.mark.parametrize(("in_codes_ms", "is_tried"), [(0.4, False), (0.6, True)])
def test_a_mix_of_codes_inside_the_budget_is_tried_where_it_gains_a_tenth(
    monkeypatch: pytest.MonkeyPatch, in_codes_ms: float, is_tried: bool
):
    """One of four products is slower in codes, 0.3 ms in floats: a mix takes 1.05 of 1.15 ms, or of 1.35."""
    codes_ms = 3 * 0.25 + in_codes_ms

    def timed_engine(candidate, model, inputs, *, latency_ms, sessions, watched):
        nodes = [node for node in model.graph.graph if node.op_type == "MatMul"]
        times = [0.25 if candidate.spec.has_codes else 0.5] * len(nodes)
        times[1] = in_codes_ms if candidate.spec.has_codes else 0.3
        layers = [TimedLayer((node.name,), ms) for node, ms in zip(nodes, times, strict=True)]
        return TimedEngine(layers, latency_ms)

    def time_candidates(candidates, *unused, **more):
        known = {"onnxruntime fp32": 1.8, "onnxruntime int8": codes_ms, "onnxruntime int8 mixed": 1.05}
        return {name: Latency((known[name],) * 32) for name in candidates}

    monkeypatch.setattr(quantrt.mix.measure, "timed_engine", timed_engine)
    for module in (quantrt.mix.measure, importlib.import_module("quantrt.build")):
        monkeypatch.setattr(module, "time_candidates", time_candidates)
    with build(outlier_model(), config=CONFIG, calibration=INPUTS, validation=INPUTS) as engine:
        report = engine.plan.report
    assert report["verdict"]["shipped"] == f"onnxruntime int8{' mixed' if is_tried else ''}"
    assert len(report["mixed"]["rounds"]) == is_tried
    if not is_tried:
        assert report["mixed"]["reason"].startswith("not tried: the fastest mix is predicted to take 1.05 ms")


@pytest.mark.parametrize(("lucky", "sessions", "mix_ms"), [(True, 2, "1.1"), (False, 1, "1")])
def test_what_seems_faster_in_one_session_alone_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, lucky: bool, sessions: int, mix_ms: str
):
    """Two products seem slower in codes at first, by as much as the others seem faster; none of them is."""
    seen: list[str] = []

    def timed_engine(candidate, model, inputs, *, latency_ms, sessions, watched):
        nodes = [node for node in model.graph.graph if node.op_type == "MatMul"]
        times = [latency_ms / 4] * 4
        if candidate.spec.has_codes and len(seen) < 2 and lucky:
            times = [latency_ms * part for part in (0.4, 0.1, 0.4, 0.1)]
        seen.append(candidate.spec.name)
        layers = [TimedLayer((node.name,), ms) for node, ms in zip(nodes, times, strict=True)]
        return TimedEngine(layers, latency_ms)

    def time_candidates(candidates, *unused, **more):
        known = {"onnxruntime fp32": 1.2, "onnxruntime int8": 1.0}
        return {name: Latency((known[name],) * 32) for name in candidates}

    monkeypatch.setattr(quantrt.mix.measure, "timed_engine", timed_engine)
    for module in (quantrt.mix.measure, importlib.import_module("quantrt.build")):
        monkeypatch.setattr(module, "time_candidates", time_candidates)
    with build(outlier_model(), config=CONFIG, calibration=INPUTS, validation=INPUTS) as engine:
        report = engine.plan.report
    assert report["verdict"]["shipped"] == "onnxruntime int8"
    assert report["mixed"]["rounds"] == []
    assert report["mixed"]["reason"].startswith(
        f"not tried: the fastest mix is predicted to take {mix_ms} ms"
    )
    assert len(seen) == 2 * sessions


def test_codes_that_are_not_surely_faster_than_floats_are_no_reason_to_mix(monkeypatch: pytest.MonkeyPatch):
    """They seem twice as fast, as any mix of them would, and were slower in as many rounds."""
    times = {"onnxruntime fp32": [1.0] * 30, "onnxruntime int8": [0.4] * 16 + [1.6] * 14}

    def timed_engine(candidate, model, inputs, *, latency_ms, sessions, watched):
        nodes = [node for node in model.graph.graph if node.op_type == "MatMul"]
        return TimedEngine([TimedLayer((node.name,), latency_ms / len(nodes)) for node in nodes], latency_ms)

    def time_candidates(candidates, *unused, **more):
        return {name: Latency(tuple(times[name])) for name in candidates}

    monkeypatch.setattr(quantrt.mix.measure, "timed_engine", timed_engine)
    for module in (quantrt.mix.measure, importlib.import_module("quantrt.build")):
        monkeypatch.setattr(module, "time_candidates", time_candidates)
    with build(outlier_model(), config=CONFIG, calibration=INPUTS, validation=INPUTS) as engine:
        report = engine.plan.report
    assert report["verdict"]["shipped"] == "onnxruntime fp32"
    assert report["mixed"]["rounds"] == []
    assert report["mixed"]["reason"] == (
        "not tried: the fastest mix is predicted to take 0.4 ms, and 0.4 ms are had without one"
    )
