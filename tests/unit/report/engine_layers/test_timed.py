# SPDX-License-Identifier: Apache-2.0
"""Layers of candidates that a library was watched for."""

import importlib

import numpy as np
import pytest

from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions
from quantrt.report.built.candidate_times import candidate_times
from quantrt.report.engine_layers.of_engine import EngineLayer, engine_layers
from quantrt.report.engine_layers.openvino import openvino_layers
from quantrt.report.engine_layers.timed import candidate_plan, timed_engine
from quantrt.report.engine_layers.watched import WatchedLayers
from quantrt.runtime.layer_times import LayerTimes
from quantrt.runtime.onnxruntime import watch as onnxruntime_watch
from quantrt.runtime.openvino import watch as openvino_watch
from quantrt.tactics.candidates import Candidate, Spec
from tests.nets import net

MODEL = net("net (float[N,3] x) => (float[N,3] y) { h = Relu (x)  y = Exp (h) }", [])
INPUTS = {"x": np.ones((2, 3), np.float32)}


@pytest.fixture
def candidate() -> Candidate:
    lowered = lower_to_onnxruntime(MODEL.graph)
    return Candidate(Spec("onnxruntime", "fp32"), lowered, ExecOptions(), None, None)  # type: ignore[arg-type]


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[LayerTimes]:
    """Those that were watched: the first is the slowest."""
    found: list[LayerTimes] = []

    def time_plan(plan, inputs, *, runs, warmup_runs, beside) -> LayerTimes:
        slow = 4.0 - len(found)
        times_ms = ((slow, slow + 1.0), (2.0 * slow, 2.0 * slow + 1.0))
        found.append(
            LayerTimes(names=("Relu_0", "Exp_1"), times_ms=times_ms, run_ms=(9.0,), method="a clock")
        )
        return found[-1]

    def first_session(plan, inputs, beside) -> tuple[tuple[EngineLayer, ...], LayerTimes]:
        return engine_layers(plan, shapes={"x": (2, 3)}), time_plan(
            plan, inputs, runs=1, warmup_runs=0, beside=beside
        )

    watched = importlib.import_module("quantrt.report.engine_layers.watched")
    monkeypatch.setattr(watched, "time_plan", time_plan)
    monkeypatch.setattr(watched, "first_session", first_session)
    return found


def test_sessions_of_before_count(candidate: Candidate, sessions: list[LayerTimes]):
    watched = WatchedLayers(candidate_plan(candidate, MODEL), INPUTS)
    for count, least_ms in ((1, [4.0, 8.0]), (3, [2.0, 4.0]), (2, [2.0, 4.0])):
        engine = timed_engine(candidate, MODEL, INPUTS, latency_ms=1.0, sessions=count, watched=watched)
        assert [layer.time_ms for layer in engine.layers] == least_ms
    assert watched.sessions == sessions and len(sessions) == 3


def test_what_was_watched_before_is_told_without_being_watched_again(
    candidate: Candidate, sessions: list[LayerTimes]
):
    watched = WatchedLayers(candidate_plan(candidate, MODEL), INPUTS)
    timed_engine(candidate, MODEL, INPUTS, latency_ms=1.0, sessions=2, watched=watched)
    both = {"a": candidate, "b": candidate}
    found = candidate_times(both, MODEL, INPUTS, watched={"a": watched})
    assert [us for us, _ in found["a"]["layers"]] == [3e3, 6e3]
    assert [us for us, _ in found["b"]["layers"]] == [2e3, 4e3]
    assert len(sessions) == 3


def test_anew_there_are_the_same_layers_and_no_sessions(candidate: Candidate, sessions: list[LayerTimes]):
    watched = WatchedLayers(candidate_plan(candidate, MODEL), INPUTS)
    again = watched.anew()
    assert again.layers == watched.layers and again.sessions == [] and len(watched.sessions) == 1
    assert again.least_ms() == {} and watched.least_ms() == {"Relu_0": 4.0, "Exp_1": 8.0}


def test_openvino_compiles_once_for_the_layers_and_the_first_session(monkeypatch: pytest.MonkeyPatch):
    opened: list[object] = []

    class Counted(openvino_watch.WatchedOpenVino):
        def __init__(self, *arguments, **options) -> None:
            opened.append(arguments)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(openvino_watch, "WatchedOpenVino", Counted)
    lowered = lower_to_openvino(MODEL.graph)
    candidate = Candidate(Spec("openvino", "fp32"), lowered, ExecOptions(), None, None)  # type: ignore[arg-type]
    plan = candidate_plan(candidate, MODEL)
    watched = WatchedLayers(plan, INPUTS)
    watched.watch()
    assert len(opened) == 1 and len(watched.sessions) == 1
    assert watched.layers == openvino_layers(plan, {"x": (2, 3)})
    assert {layer.name for layer in watched.layers} == set(watched.least_ms())


def test_onnxruntime_opens_one_session_for_the_layers_and_their_times(
    monkeypatch: pytest.MonkeyPatch, candidate: Candidate
):
    opened: list[object] = []

    class Counted(onnxruntime_watch._Watched):
        def __init__(self, *arguments, **options) -> None:
            opened.append(arguments)
            super().__init__(*arguments, **options)

    plan = candidate_plan(candidate, MODEL)
    wanted = engine_layers(plan, shapes={"x": (2, 3)})
    monkeypatch.setattr(onnxruntime_watch, "_Watched", Counted)
    watched = WatchedLayers(plan, INPUTS)
    watched.watch()
    assert len(opened) == 1 and len(watched.sessions) == 1
    assert watched.layers == wanted
    assert {layer.name for layer in watched.layers} == set(watched.least_ms())
