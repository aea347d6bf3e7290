# SPDX-License-Identifier: Apache-2.0
"""What `bench` says: figures that belong together, the right way round."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from quantrt.cli.json_text import json_text
from quantrt.config import BenchConfig
from quantrt.report import bench
from quantrt.report.bench import hold_to, measure, show_bench
from quantrt.report.subject import Subject, open_subject
from quantrt.tactics.timing import Latency
from tests.programs import GPU, cuda_plan, pooled_program

CONFIG = BenchConfig(warmup_s=0.01, duration_s=0.05, max_duration_s=0.1, min_runs=3)
X = {"x": np.ones((2, 4), np.float32)}


def test_real_timings(make_engine: Callable[..., Path], capsys: pytest.CaptureFixture[str]):
    path = make_engine("onnxruntime")
    with open_subject(path) as engine, open_subject(path.with_name("model.onnx")) as model:
        data = measure([model, engine], [X, X], CONFIG, batch=2)
    assert json.loads(json_text(data))["batch"] == 2
    for row in data["files"]:
        assert (
            0
            < row["min_ms"]
            <= row["p5_ms"]
            <= row["median_ms"]
            <= row["p95_ms"]
            <= row["p99_ms"]
            <= row["max_ms"]
        )
        assert row["samples_per_s"] == pytest.approx(2000 / row["median_ms"])
    show_bench({**data, "files": [{**row, "file": f"m{i}.onnx"} for i, row in enumerate(data["files"])]})
    assert max(map(len, capsys.readouterr().out.splitlines()[1:])) <= 110


def test_the_ratio_is_the_speed_against_the_first(
    make_engine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def timed(runs: dict[str, object], *rest: object) -> dict[str, Latency]:
        return {name: Latency(tuple([4.0 / (1 + int(name))] * 60), 3) for name in runs}

    monkeypatch.setattr(bench, "time_interleaved", timed)
    path = make_engine("onnxruntime")
    with open_subject(path) as engine:
        data = measure([engine, engine], [X, X], CONFIG, batch=1)
    (ratio,) = data["ratios"]
    assert ratio["speedup_ratio"] == pytest.approx(2.0)
    assert ratio["verdict"] == "faster"
    show_bench(data)
    assert "2.00x" in capsys.readouterr().out


def test_an_unsteady_machine_is_mentioned(make_engine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch):
    samples = tuple([1.0, 3.0] * 30)
    monkeypatch.setattr(
        bench, "time_interleaved", lambda runs, *rest: {name: Latency(samples, 3) for name in runs}
    )
    with open_subject(make_engine("onnxruntime")) as engine:
        data = measure([engine], [X], CONFIG, batch=1)
    assert any("latencies vary by 50%" in note for note in data["notes"])


def on_cpu(name: str) -> Subject:
    """An engine for a GPU whose program runs on the CPU."""
    pytest.importorskip("torch", reason="programs run in torch")
    from quantrt.runtime.cuda.executor import CudaExecutor, specs_of

    plan, program = cuda_plan(), pooled_program()
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    return Subject(
        Path(name),
        executor,
        plan.model,
        plan.options,
        plan.inputs,
        executor=executor,
        kind="engine",
        precision="int8",
    )


def test_an_engine_for_a_gpu_is_timed_with_and_without_copies(
    make_engine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(bench, "describe_machine", lambda library: {"cpu": "A", "gpu": [GPU]})
    x = {"x": np.ones((1, 3, 4, 4), np.float32)}
    with on_cpu("a.qrt") as first, on_cpu("b.qrt") as second:
        data = measure([first, second], [x, x], CONFIG, batch=1)
    ways = [(name, what) for name in ("a.qrt", "b.qrt") for what in ("call", "replay")]
    assert [(row["file"], row["timed"]) for row in data["files"]] == ways
    assert [(row["file"], row["timed"]) for row in data["ratios"]] == [("b.qrt", "call"), ("b.qrt", "replay")]
    show_bench(data)
    out = capsys.readouterr().out
    assert "on NVIDIA Test 9, 80 GB, driver 570.1" in out
    assert "b.qrt (replay)" in out
    assert "replay: on the GPU alone" in out


def test_replays_are_not_compared_with_calls(
    make_engine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bench, "describe_machine", lambda library: {"cpu": "A", "gpu": [GPU]})
    x = {"x": np.ones((1, 3, 4, 4), np.float32)}
    with open_subject(make_engine("onnxruntime")) as model, on_cpu("b.qrt") as engine:
        data = measure([model, engine], [X, x], CONFIG, batch=1)
    assert [(row["file"], row["timed"]) for row in data["ratios"]] == [("b.qrt", "call")]


def test_only_what_is_surely_slower_fails(capsys: pytest.CaptureFixture[str]):
    intervals = {"new": (0.90, 0.94), "noisy": (0.80, 1.10), "short": (None, None), "faster": (1.2, 1.3)}
    ratios = [
        {"file": name, "timed": "call", "speedup_ratio": 1.0, "lo": lo, "hi": hi, "verdict": "same"}
        for name, (lo, hi) in intervals.items()
    ]
    data = {
        "base": "old",
        "batch": 1,
        "shapes": {"mels": [1, 40, 50]},
        "device": {"cpu": "X", "available_cores": 2, "libraries": {}, "gpu": None},
        "files": [],
        "ratios": ratios,
        "notes": [],
        "peak_memory": {"host_bytes": 1, "device_bytes": None},
    }
    held = hold_to(data, 0.95)
    assert [row["passed"] for row in held["ratios"]] == [False, True, True, True]
    assert (held["passed"], held["min_speed"], hold_to(data, 0.94)["passed"]) == (False, 0.95, True)
    assert "passed" not in data
    show_bench(held)
    out = capsys.readouterr().out
    assert "FAILED: surely less than 0.95 times as fast as old: new\n" in out
    assert "inputs: mels 1x40x50\n" in out
    show_bench(hold_to(data, 0.9))
    assert "PASSED: 0.9 times as fast as old, or not surely less\n" in capsys.readouterr().out
