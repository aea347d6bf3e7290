# SPDX-License-Identifier: Apache-2.0
"""When a mix is tried though all of the codes are inside the budget; times are made up."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import quantrt.mix.measure
from quantrt.assign.tables.cost_model import TimedEngine, TimedLayer
from quantrt.build import build
from quantrt.config import BenchConfig, Budget, BuildConfig, CalibrationConfig, DeviceConfig
from quantrt.tactics.candidates import Candidate
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


def reported(
    monkeypatch: pytest.MonkeyPatch,
    rounds: Mapping[str, Sequence[float]],
    layers_ms: Callable[[Candidate, float], Sequence[float]],
) -> dict[str, Any]:
    """The report of a build whose times are made up.

    Args:
        rounds: milliseconds of each round of a race, by candidate.
        layers_ms: of the four products of a candidate, which takes as many milliseconds as it is told.
    """

    def timed_engine(candidate, model, inputs, *, latency_ms, sessions, watched):
        names = [node.name for node in model.graph.graph if node.op_type == "MatMul"]
        times = layers_ms(candidate, latency_ms)
        layers = [TimedLayer((name,), ms) for name, ms in zip(names, times, strict=True)]
        return TimedEngine(layers, latency_ms)

    def time_candidates(candidates, *unused, **more):
        return {name: Latency(tuple(rounds[name])) for name in candidates}

    monkeypatch.setattr(quantrt.mix.measure, "timed_engine", timed_engine)
    for module in (quantrt.mix.measure, importlib.import_module("quantrt.build")):
        monkeypatch.setattr(module, "time_candidates", time_candidates)
    with build(outlier_model(), config=CONFIG, calibration=INPUTS, validation=INPUTS) as engine:
        return engine.plan.report


@pytest.mark.parametrize(("in_codes_ms", "is_tried"), [(0.4, False), (0.6, True)])
def test_a_mix_of_codes_inside_the_budget_is_tried_where_it_gains_a_tenth(
    monkeypatch: pytest.MonkeyPatch, in_codes_ms: float, is_tried: bool
):
    """One of four products is slower in codes, 0.3 ms in floats: a mix takes 1.05 of 1.15 ms, or of 1.35."""
    known = {"fp32": 1.8, "int8": 3 * 0.25 + in_codes_ms, "int8 mixed": 1.05}

    def layers_ms(candidate: Candidate, latency_ms: float) -> list[float]:
        return [0.25, in_codes_ms, 0.25, 0.25] if candidate.spec.has_codes else [0.5, 0.3, 0.5, 0.5]

    rounds = {f"onnxruntime {name}": [ms] * 32 for name, ms in known.items()}
    report = reported(monkeypatch, rounds, layers_ms)
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

    def layers_ms(candidate: Candidate, latency_ms: float) -> list[float]:
        seems = lucky and candidate.spec.has_codes and len(seen) < 2
        seen.append(candidate.spec.name)
        return [latency_ms * part for part in ((0.4, 0.1, 0.4, 0.1) if seems else (0.25,) * 4)]

    rounds = {"onnxruntime fp32": [1.2] * 32, "onnxruntime int8": [1.0] * 32}
    report = reported(monkeypatch, rounds, layers_ms)
    assert report["verdict"]["shipped"] == "onnxruntime int8"
    assert report["mixed"]["rounds"] == []
    assert report["mixed"]["reason"].startswith(
        f"not tried: the fastest mix is predicted to take {mix_ms} ms"
    )
    assert len(seen) == 2 * sessions


def test_codes_that_are_not_surely_faster_than_floats_are_no_reason_to_mix(monkeypatch: pytest.MonkeyPatch):
    """They seem twice as fast, as any mix of them would, and were slower in as many rounds."""
    rounds = {"onnxruntime fp32": [1.0] * 30, "onnxruntime int8": [0.4] * 16 + [1.6] * 14}
    report = reported(monkeypatch, rounds, lambda candidate, latency_ms: [latency_ms / 4] * 4)
    assert report["verdict"]["shipped"] == "onnxruntime fp32"
    assert report["mixed"]["rounds"] == []
    assert report["mixed"]["reason"] == (
        "not tried: the fastest mix is predicted to take 0.4 ms, and 0.4 ms are had without one"
    )
