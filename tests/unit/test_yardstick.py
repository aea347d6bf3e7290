# SPDX-License-Identifier: Apache-2.0
"""FP32 is left out of a build without data where an earlier one of the same showed that it is far behind."""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt import yardstick as module
from quantrt.build import build
from quantrt.calibrate.collect import collect
from quantrt.config import AssignConfig, BuildConfig, CalibrationConfig, DeviceConfig
from quantrt.model.for_gpu import for_gpu
from quantrt.model.model import Model
from quantrt.tactics.candidates import Opener
from quantrt.tactics.latency import Latency
from tests.gpu_stand_in import BRIEF, REFERENCE_ALONE, stand_in_for_gpu
from tests.nets import dataset, net, samples, weights

TEXT = "net (float[N,64] x) => (float[N,64] y) { h = MatMul(x, v) r = Relu(h) y = MatMul(r, w) }"
ROWS = {"x": samples(8, 64)}
CONFIG = BuildConfig(
    assign=AssignConfig(mixed=False),
    precisions=frozenset({"fp32", "fp16", "int8"}),
    bench=BRIEF,
    calibration=CalibrationConfig(method="minmax"),
    device=DeviceConfig(device="cuda"),
    cuda=REFERENCE_ALONE,
)

FP32_MS = {"far": 8.0, "near": 1.4}
SPEC_MS = {"fp16": 1.0, "int8": 0.5}


def model_of(scale: float = 1.0) -> Model:
    arrays = weights({"v": (64, 64), "w": (64, 64)})
    return net(TEXT, {name: np.float32(scale) * array for name, array in arrays.items()})


def built(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    model: Model | None = None,
    fp32: str = "far",
    **more: Any,
) -> tuple[Mapping[str, Any], list[str]]:
    """The report, and the names of what was opened; times are made up."""
    config = replace(CONFIG, cuda=replace(REFERENCE_ALONE, timing_cache=str(cache)))
    model = model or model_of()
    opened: list[str] = []
    inner = Opener.open

    def counted(self, spec, fitted):
        opened.append(spec.name)
        return inner(self, spec, fitted)

    def time_candidates(candidates, *given, **options):
        times = {**SPEC_MS, "fp32": FP32_MS[fp32]}
        return {name: Latency((times[one.spec.precision],) * 8) for name, one in candidates.items()}

    monkeypatch.setattr(Opener, "open", counted)
    monkeypatch.setattr(importlib.import_module("quantrt.build"), "time_candidates", time_candidates)
    given = {"stats": stats_of(model), **more}
    with stand_in_for_gpu(), build(model, config=given.pop("config", config), **given) as engine:
        monkeypatch.undo()
        return engine.report, opened


def stats_of(model: Model):
    return collect(for_gpu(model), ["x", "r"], dataset(model, ROWS), CONFIG.calibration)


def rows_of(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {row["name"]: row for row in report["candidates"]}


def test_what_lost_by_far_is_left_out_of_the_next_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, opened = built(tmp_path / "t.json", monkeypatch)
    assert opened == ["cuda fp32", "cuda fp16", "cuda int8+fp16"]
    assert first["verdict"]["baseline"] == "cuda fp32"
    again, opened = built(tmp_path / "t.json", monkeypatch)
    assert opened == ["cuda fp16", "cuda int8+fp16"]
    rows = rows_of(again)
    assert rows["cuda fp32"] == {
        "name": "cuda fp32",
        "status": "left out",
        "reason": "an earlier build with this timing cache timed it: 8 ms, where cuda fp16 took 1 ms, "
        "and no data ask for its outputs",
    }
    assert again["verdict"]["shipped"] == first["verdict"]["shipped"] == "cuda int8+fp16"
    assert again["verdict"]["baseline"] == "cuda fp16"
    assert rows["cuda fp16"]["reason"] == "the fastest FP16 candidate"
    assert rows["cuda int8+fp16"]["against_float"]["ratio"] == 0.5
    assert "2.00x as fast as cuda fp16" in again["verdict"]["reason"]


def test_what_is_near_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for _ in range(2):
        _, opened = built(tmp_path / "t.json", monkeypatch, fp32="near")
        assert "cuda fp32" in opened
    assert not (tmp_path / "t.json.floats").exists()


@pytest.mark.parametrize("differs", ["data", "weights", "options", "batch", "sources"])
def test_it_is_opened_where_anything_else_is_asked(
    differs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    built(tmp_path / "t.json", monkeypatch)
    more: dict[str, Any] = {}
    cuda = replace(REFERENCE_ALONE, timing_cache=str(tmp_path / "t.json"))
    if differs == "data":
        more = {"calibration": ROWS}
    if differs == "weights":
        more = {"model": model_of(2.0)}
    if differs == "options":
        more = {"config": replace(CONFIG, cuda=replace(cuda, workspace_mb=64))}
    if differs == "batch":
        more = {"config": replace(CONFIG, cuda=cuda, bench=replace(BRIEF, batch=4))}
    if differs == "sources":
        monkeypatch.setattr(module, "source_digest", lambda folders: "0")
    _, opened = built(tmp_path / "t.json", monkeypatch, **more)
    assert "cuda fp32" in opened


def test_without_a_timing_cache_it_is_always_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    config = replace(CONFIG, cuda=REFERENCE_ALONE)
    for _ in range(2):
        _, opened = built(tmp_path / "t.json", monkeypatch, config=config)
        assert "cuda fp32" in opened
    assert not list(tmp_path.iterdir())


def test_where_nothing_else_can_be_opened_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What FP16 makes has to be finite, for FP32's outputs were."""
    built(tmp_path / "t.json", monkeypatch)
    infinite = {"y": np.full((1, 64), np.inf, np.float32)}
    inner = Opener._run_once

    def run_once(self, spec, executor):
        if spec.precision != "fp32":
            monkeypatch.setattr(executor, "run", lambda inputs: infinite)
        return inner(self, spec, executor)

    monkeypatch.setattr(Opener, "_run_once", run_once)
    report, opened = built(tmp_path / "t.json", monkeypatch)
    assert opened[-3:] == ["cuda fp32", "cuda fp16", "cuda int8+fp16"]
    assert report["verdict"]["shipped"] == "cuda fp32"
    assert "not finite" in rows_of(report)["cuda fp16"]["reason"]


@pytest.mark.parametrize("text", ["", "{}", '{"format": "quantrt kept floats", "lost": {"a": {"lo": 1}}}'])
def test_a_damaged_file_is_made_anew(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "t.json.floats").write_text(text)
    _, opened = built(tmp_path / "t.json", monkeypatch)
    assert "cuda fp32" in opened
    _, again = built(tmp_path / "t.json", monkeypatch)
    assert "cuda fp32" not in again
