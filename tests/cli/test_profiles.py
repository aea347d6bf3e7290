# SPDX-License-Identifier: Apache-2.0
"""Engines for a GPU with two profiles, explained and shown: from the file, and run on the CPU instead."""

import importlib
import math
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="programs run in torch")

import quantrt
from quantrt.build import build
from quantrt.config import BenchConfig
from quantrt.plan.serialize import load_plan
from quantrt.report.explain import gather, times
from quantrt.runtime.profile_check import profiles_of
from tests.nets import resnet
from tests.programs import GPU
from tests.unit.test_build_profiles import config, cpu_for_gpu

engine_module = importlib.import_module("quantrt.runtime.engine")
report_module = importlib.import_module("quantrt.report.report")

__all__ = ["cpu_for_gpu"]

PROFILES = ("x=2x3x16x16:2x3x16x16:4x3x16x16", "x=5x3x16x16:8x3x16x16:16x3x16x16")
BENCH = BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines") / "two.qrt"


@pytest.fixture
def engine(cpu_for_gpu: None, shared: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Built once, in floats, for batches of 2 to 4 and of 5 to 16."""
    if not shared.exists():
        floats = replace(config(*PROFILES), precisions=frozenset({"fp32"}))
        with build(resnet(), config=floats) as made:
            made.save(shared)
    monkeypatch.setattr(engine_module, "check_library", lambda library, **options: None)
    here = {**load_plan(shared).device, "gpu": [GPU]}
    for module in (engine_module, report_module):
        monkeypatch.setattr(module, "describe_machine", lambda library: here)
    for module in (times, gather):
        monkeypatch.setattr(module, "TIMING", BENCH)
    monkeypatch.setattr(times, "RUNS", 2)
    path = folder / "two.qrt"
    path.write_bytes(shared.read_bytes())
    return path


def test_the_file_tells_of_which_shapes_its_figures_are(engine: Path, quantrt_json, quantrt_text):
    assert [str(profile) for profile in profiles_of(load_plan(engine).model)] == list(PROFILES)
    data = quantrt_json("explain", "two.qrt", "--no-run")
    assert data["shapes"] == {"x": [2, 3, 16, 16]}, "the best of the first"
    assert "x 2x3x16x16" in quantrt_text("explain", "two.qrt", "--no-run")


def test_sizes_follow_the_shapes_that_are_run(engine: Path, quantrt_json, quantrt_text):
    first = quantrt_json("explain", "two.qrt")
    assert first["shapes"] == {"x": [2, 3, 16, 16]} and first["times"]["basis"] == "measured here"
    other = quantrt_json("explain", "two.qrt", "--batch", "8")
    assert other["shapes"] == {"x": [8, 3, 16, 16]}
    rows = [(a, b) for a, b in zip(first["layers"], other["layers"], strict=True) if a["operations"]]
    assert len(rows) >= 5
    for small, large in rows:
        assert large["name"] == small["name"] and large["operations"] == 4 * small["operations"]
        activations = sum(4 * math.prod(form["dims"]) for form in (*small["inputs"], *small["outputs"]))
        assert large["bytes"] - small["bytes"] == 3 * activations, "its weights are read once"
        assert large["inputs"][0]["dims"] == [8, *small["inputs"][0]["dims"][1:]]
    assert "x 8x3x16x16" in quantrt_text("explain", "two.qrt", "--batch", "8")


def test_shapes_between_the_profiles_are_refused(engine: Path, quantrt_json):
    error = quantrt_json("explain", "two.qrt", "--batch", "20", code=3)["error"]
    assert "outside the shapes that the engine was built for" in error["message"]
    assert all(text.replace("=", " ") in error["expected"] for text in PROFILES)


def test_a_page_of_either_profile(engine: Path, quantrt_json):
    words = ("report", "two.qrt", "-o", "page.html")
    (stored,) = quantrt_json(*words, "--no-run")["engines"]
    (run,) = quantrt_json(*words, "--batch", "8", "--layer-runs", "2")["engines"]
    pairs = list(zip(stored["layers"], run["layers"], strict=True))
    assert [b["operations"] for _, b in pairs if b["operations"]] == [
        4 * a["operations"] for a, _ in pairs if a["operations"]
    ]
    assert run["measured"]["inputs"].endswith("x [8, 3, 16, 16]")
    with quantrt.load(engine) as opened:
        report = quantrt.make_report(opened)
    assert report.data["engines"][0]["measured"]["inputs"].endswith("x [2, 3, 16, 16]")
