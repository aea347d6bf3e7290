# SPDX-License-Identifier: Apache-2.0
"""`quantrt explain`: what it tells of an engine, of some layers, and against another engine."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from quantrt.build import build
from quantrt.config import AssignConfig, BenchConfig, BuildConfig, DeviceConfig
from quantrt.plan.plan import Layer
from quantrt.plan.serialize import load_plan, save_plan
from quantrt.report.explain import cpu_peaks, gather, times
from tests.nets import resnet, samples
from tests.programs import cuda_plan

CONV = resnet().graph.graph[0].name or ""
CONFIG = BuildConfig(
    precisions=frozenset({"fp32", "int8"}),
    assign=AssignConfig(bf16_beside_int8=False),
    bench=BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3),
)


@pytest.fixture(autouse=True)
def short_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller probes and fewer runs, of the same kinds."""
    monkeypatch.setattr(cpu_peaks, "SIZE", 256)
    monkeypatch.setattr(cpu_peaks, "SETS_BYTES", (1 << 16, 1 << 20))
    monkeypatch.setattr(times, "RUNS", 5)
    for module in (times, gather):
        monkeypatch.setattr(module, "TIMING", CONFIG.bench)


@pytest.fixture(scope="module", params=["onnxruntime", "openvino"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine with its build's report."""
    config = replace(CONFIG, device=DeviceConfig(libraries=(request.param,)))
    path = tmp_path_factory.mktemp("built") / "m.qrt"
    with build(resnet(), config=config, calibration={"x": samples(4, 3, 16, 16)}) as engine:
        engine.save(path)
    return path


@pytest.fixture
def engine(built: Path, folder: Path) -> Path:
    """In the present folder."""
    return Path(shutil.copy(built, folder / "m.qrt"))


def test_an_engine_is_explained(engine: Path, quantrt_json, quantrt_text):
    data = quantrt_json("explain", "m.qrt")
    assert data["times"]["basis"] == "measured here" and data["times"]["engine_us"] > 0
    assert data["peaks"]["giga_operations_per_s"]["int8"] > 0
    reached = [row["roofline_us"] / row["time_us"] for row in data["layers"] if row["bound"] == "compute"]
    assert all(ratio <= 1 + 1e-9 for ratio in reached)
    nodes = [node for row in data["layers"] for node in row["nodes"]]
    assert sorted(nodes) == sorted(layer.name for layer in load_plan(engine).layers)
    assert sum(row["share_ratio"] for row in data["by_cause"]) == pytest.approx(1)
    assert sum(row["share_ratio"] for row in data["by_precision"]) == pytest.approx(1)
    assert sum(row["bytes"] for row in data["size"]["parts"]) == engine.stat().st_size
    assert len(data["changes"]) <= 3
    assert all(change["gain_ratio"] >= 0.01 and change["basis"] for change in data["changes"])
    text = quantrt_text("explain", "m.qrt", "--all")
    for part in ("latency", "roofline", "time by cause", "what is in the file"):
        assert part in text


def test_an_engine_is_explained_at_the_batch_that_it_was_built_at(tmp_path: Path, quantrt_json):
    config = replace(
        CONFIG, device=DeviceConfig(libraries=("onnxruntime",)), bench=replace(CONFIG.bench, batch=3)
    )
    with build(resnet(), config=config, calibration={"x": samples(4, 3, 16, 16)}) as engine:
        engine.save(tmp_path / "m.qrt")
        assert engine.report["timed_shapes"] == {"x": [3, 3, 16, 16]}
    path = str(tmp_path / "m.qrt")
    assert quantrt_json("explain", path)["shapes"] == {"x": [3, 3, 16, 16]}
    assert quantrt_json("explain", path, "--batch", "2")["shapes"] == {"x": [2, 3, 16, 16]}


def test_the_precision_that_was_not_shipped_is_explained(engine: Path, quantrt_json):
    """Whichever the timing chose, the build measured the layers of the other."""
    data = quantrt_json("explain", "m.qrt")
    (other,) = data["not_shipped"]
    assert {data["precision"], other["name"].split()[1]} == {"int8", "fp32"}
    assert other["reason"] and other["nodes_us"] > 0
    assert other["conversions_us"] >= 0 and other["conversions"] >= 0
    for row in other["slower"]:
        assert row["nodes"] and row["more_us"] > 0


def test_some_layers_in_another_precision(engine: Path, quantrt_json, quantrt_text):
    data = quantrt_json("explain", "m.qrt", "--layer", CONV, "--what-if", "fp32")
    (row,) = data["layers"]
    assert CONV in row["nodes"]
    (predicted,) = data["what_if"]["layers"]
    assert predicted["basis"].partition(",")[0] in ("measured at build", "estimated", "it is in fp32 already")
    assert predicted["predicted_us"] > 0
    text = quantrt_text("explain", "m.qrt", "--layer", CONV)
    assert CONV in text and "operations" in text and "weights" in text


def test_against_another_engine(engine: Path, quantrt_json, quantrt_text):
    shutil.copy("m.qrt", "other.qrt")
    data = quantrt_json("explain", "m.qrt", "--against", "other.qrt")["against"]
    assert data["other_engine_us"] > 0
    for row in data["layers"]:
        assert row["layers"] == row["other_layers"], "one engine is grouped as its copy is"
        assert row["more_us"] == pytest.approx(row["time_us"] - row["other_us"])
    assert data["layers"]
    assert "conversions" in quantrt_text("explain", "m.qrt", "--against", "other.qrt")


def test_an_engine_for_a_gpu_is_explained_from_its_file(folder: Path, quantrt_json, quantrt_text):
    save_plan(cuda_plan(), folder / "gpu.qrt")
    data = quantrt_json("explain", "gpu.qrt", "--no-run")
    assert data["times"]["basis"] == "measured at build"
    assert data["times"]["layers_us"] == pytest.approx(14.34)
    assert data["peaks"] is None and "not known" in data["no_peaks"]
    conv = next(row for row in data["layers"] if row["name"] == "region of pool")
    assert (conv["time_us"], conv["tactic"]) == (12.34, "triton: conv2d 64x32")
    assert "machine code for sm_90" in quantrt_text("explain", "gpu.qrt", "--no-run")


def test_fusions_that_did_not_happen_are_told(folder: Path, quantrt_json, quantrt_text):
    nodes = (Layer(name="pool", op_type="MaxPool", precision="fp16", reason="asked for"),)
    save_plan(cuda_plan(layers=nodes), folder / "gpu.qrt")
    rows = quantrt_json("explain", "gpu.qrt", "--no-run")["layers"]
    missed = {row["name"]: row["missed_fusions"] for row in rows if row["missed_fusions"]}
    assert missed == {"region of pool": ["epilogue at 'pool': its result is used twice"]}
    said = quantrt_text("explain", "gpu.qrt", "--no-run", "--layer", "region of pool")
    assert "not fused" in said and "its result is used twice" in said


def test_what_cannot_be_explained(engine: Path, quantrt_json):
    assert "suffix" in quantrt_json("explain", "model.onnx", code=2)["error"]["got"]
    error = quantrt_json("explain", "m.qrt", "--layer", "Cnv*", code=2)["error"]
    assert "no layer of the engine matches 'Cnv*'" in error["message"]
    assert "--no-run" in quantrt_json("explain", "m.qrt", "--no-run", code=2)["error"]["hint"]
    assert "batch size" in quantrt_json("explain", "m.qrt", "--batch", "0", code=2)["error"]["message"]
    error = quantrt_json("explain", "m.qrt", "--no-run", "--against", "m.qrt", code=2)["error"]
    assert "--against is for running" in error["message"]
    quantrt_json("explain", "missing.qrt", code=3)
    Path("bad.qrt").write_bytes(Path("m.qrt").read_bytes()[:500])
    quantrt_json("explain", "bad.qrt", code=3)


def test_another_model_is_nothing_to_hold_it_against(engine: Path, folder: Path, quantrt_json):
    from tests.plans import make_plan

    save_plan(make_plan("onnxruntime"), folder / "other.qrt")
    error = quantrt_json("explain", "m.qrt", "--against", "other.qrt", code=2)["error"]
    assert (
        "different models" in error["message"]
        and error["got"] == "inputs x float32 [N,3,16,16] and x float32 [N,32]"
    )
    error = quantrt_json("report", "m.qrt", "other.qrt", "--no-run", "-o", "r.html", code=2)["error"]
    assert "cannot hold 'm.qrt' against 'other.qrt'" in error["message"]
    assert not Path("r.html").exists()
