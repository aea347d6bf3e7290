# SPDX-License-Identifier: Apache-2.0
"""`quantrt trtexec` from command line to log, files and exit code; and other people's readers of these."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from quantrt.cli.main import main
from quantrt.model.load import load_model
from quantrt.plan.container import FORMAT_VERSION
from quantrt.plan.plan import Layer
from quantrt.plan.serialize import save_plan
from quantrt.runtime.engine import load
from quantrt.runtime.layer_times import LayerTimes, time_layers
from quantrt.trtexec.shim import install_shim
from tests.plans import make_plan

QUICK = ("--warmUp=1", "--duration=0.02", "--iterations=10", "--avgRuns=5")
BUILD = ("--onnx=model.onnx", "--device=cpu", "--builderOptimizationLevel=0", *QUICK)
NET = """net (float[N,3,16,16] image) => (float[N,10] logits) {
    [conv] h = Conv <pads = [1,1,1,1]> (image, w)
    [relu] r = Relu (h)
    [mean] m = GlobalAveragePool (r)
    [flat] logits = Flatten (m)
}"""
LINE = re.compile(r"^\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[[IWEV]\] ")
PARSER = "torch/_deploy/_runtime/tensorrt/parse_trtexec_log.py"


@pytest.fixture
def trtexec(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run it; the command must give the exit code `code`. -> stdout, stderr."""

    def call(*words: str, code: int = 0) -> tuple[str, str]:
        got = main(["trtexec", *words])
        out, err = capsys.readouterr()
        assert got == code, out + err
        return out, err

    return call


@pytest.fixture
def engine(folder: Path, rng: np.random.Generator) -> Path:
    """An FP32 engine, planned by hand: no build is needed to load one."""
    rows = [
        Layer(name=name, op_type=op_type, precision="fp32", reason="asked for", sources=(name,))
        for name, op_type in (("conv", "Conv"), ("relu", "Relu"), ("mean", "GlobalAveragePool"))
    ]
    weights = {"w": rng.standard_normal((10, 3, 3, 3)).astype(np.float32)}
    save_plan(make_plan("onnxruntime", NET, weights, layers=tuple(rows)), folder / "model.trt")
    return folder / "model.trt"


def sections(text: str) -> dict[str, dict[str, str]]:
    """`key: value` lines under each `=== ... ===`."""
    found: dict[str, dict[str, str]] = {}
    rows: dict[str, str] = {}
    for line in text.splitlines():
        body = LINE.sub("", line)
        if header := re.fullmatch(r"=== (.*) ===", body):
            rows = found.setdefault(header[1], {})
        elif ": " in body:
            key, _, value = body.partition(": ")
            rows[key] = value
    return found


def test_the_whole_way_of_a_build(folder: Path, trtexec: Callable[..., tuple[str, str]]):
    words = (*BUILD, "--int8", "--calib-data=calib.npz", "--saveEngine=model.trt", "--shapes=image:2x3x16x16")
    out, _ = trtexec(*words, "--avgTiming=4")
    lines = out.splitlines()
    assert (
        lines[0]
        == f"&&&& RUNNING TensorRT.trtexec [TensorRT v101600] # trtexec {' '.join(words)} --avgTiming=4"
    )
    assert lines[-1] == lines[0].replace("RUNNING", "PASSED")
    assert all(LINE.match(line) for line in lines[1:-1])
    found = sections(out)
    assert list(found) == [
        "Model Options", "Build Options", "System Options", "Inference Options", "Reporting Options",
        "Device Information", "Trace details", "Performance summary",
    ]  # fmt: skip
    assert found["Model Options"] == {"Format": "ONNX", "Model": "model.onnx"}
    assert found["Build Options"]["Precision"] == "FP32+INT8"
    assert found["Build Options"]["Calibration"] == "calib.npz"
    assert found["Build Options"]["Save engine"] == "model.trt"
    assert found["Inference Options"]["Input inference shape"] == "image=2x3x16x16"
    assert "--avgTiming: nothing to do, " in out
    assert "Precisions allowed on this device: " in out
    for text in ("Engine built in ", "Created engine with size: ", "Using random values for input image"):
        assert text in out
    assert load(folder / "model.trt").inputs[0].name == "image"


def test_the_options_stand_in_trtexecs_order(folder: Path, trtexec: Callable[..., tuple[str, str]]):
    out, _ = trtexec(*BUILD, "--skipInference", "--shapes=image:1x3x16x16")
    labels = [LINE.sub("", line).partition(":")[0] for line in out.splitlines()]
    first, last = labels.index("=== Build Options ==="), labels.index("=== System Options ===")
    assert labels[first + 1 : first + 9] == [
        "Memory Pools", "avgTiming", "Precision", "LayerPrecisions", "Layer Device Types",
        "Decomposable Attentions", "Calibration", "Refit",
    ]  # fmt: skip
    assert labels[last - 4 : last] == [
        "Input(s)s format", "Output(s)s format", "Input build shape (profile 0)", "Input calibration shapes",
    ]  # fmt: skip
    assert "Trace details" not in out
    _, err = trtexec("--onnx=none.onnx", "--optShapes=image:8x3x16x16", "--json", code=3)
    assert "Input inference shape: image=8x3x16x16" in err


def test_times_of_a_loaded_engine(engine: Path, trtexec: Callable[..., tuple[str, str]]):
    out, _ = trtexec("--loadEngine=model.trt", "--shapes=image:4x3x16x16", "--percentile=50,99.5", *QUICK)
    assert "=== Build Options ===" not in out
    assert "Loaded engine with size: " in out
    summary = sections(out)["Performance summary"]
    statistics = re.compile(
        r"min = (\S+) ms, max = (\S+) ms, mean = (\S+) ms, median = (\S+) ms, "
        r"percentile\(50%\) = (\S+) ms, percentile\(99.5%\) = (\S+) ms"
    )
    for name in ("Latency", "Enqueue Time", "H2D Latency", "GPU Compute Time", "D2H Latency"):
        found = statistics.fullmatch(summary[name])
        assert found is not None, summary[name]
        least, most, mean, median, *_ = map(float, found.groups())
        assert least <= median <= most
        assert least <= mean <= most
    assert float(summary["Throughput"].removesuffix(" qps")) > 0
    assert re.findall(r"mean = ([\d.]+) ms", out)
    assert re.search(r"\[I\]\s+Latency:.*?median\s*=\s*([\d.]+)\s*ms", out)


def test_what_would_build_is_ignored_by_name_beside_an_engine(
    engine: Path, trtexec: Callable[..., tuple[str, str]]
):
    words = ("--onnx=model.onnx", "--int8", "--calib-random", "--memPoolSize=workspace:1G", "--avgTiming=4")
    out, err = trtexec("--loadEngine=model.trt", *words, "--optShapes=image:3x3x16x16", *QUICK)
    found = re.findall(r"\[W\] (\S+) is ignored: the engine of --loadEngine is built already", err)
    assert found == ["--onnx", "--int8", "--calib-random", "--memPoolSize"], "--avgTiming says it by itself"
    assert "--avgTiming: nothing to do" in out
    assert "image=3x3x16x16" in out, "opt shapes are those to run at"
    assert "is ignored" not in trtexec("--loadEngine=model.trt", "--profilingVerbosity=detailed", *QUICK)[1]


def test_a_layer_that_was_not_timed_has_no_row(
    engine: Path, trtexec: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
):
    def without_first(*args: Any, **options: Any) -> LayerTimes:
        found = time_layers(*args, **options)
        return replace(found, names=found.names[1:], times_ms=found.times_ms[1:])

    trtexec("--loadEngine=model.trt", "--exportProfile=all.json", *QUICK)
    monkeypatch.setattr("quantrt.trtexec.run.time_layers", without_first)
    _, err = trtexec("--loadEngine=model.trt", "--exportProfile=some.json", *QUICK)
    every, some = (
        [row["name"] for row in json.loads((engine.parent / f"{name}.json").read_text())[1:]]
        for name in ("all", "some")
    )
    assert some == every[1:]
    assert f"Layer {every[0]} was not timed: it has no row in the profile" in err


def test_layers_and_their_times_have_the_same_names(engine: Path, trtexec: Callable[..., tuple[str, str]]):
    out, _ = trtexec(
        "--loadEngine=model.trt", "--shapes=image:1x3x16x16", "--dumpProfile", "--exportProfile=p.json",
        "--exportLayerInfo=l.json", "--profilingVerbosity=detailed", "--dumpLayerInfo", *QUICK,
    )  # fmt: skip
    count, *rows = json.loads(Path("p.json").read_text())
    layers = json.loads(Path("l.json").read_text())
    assert count["count"] >= 10
    names = [layer["Name"] for layer in layers["Layers"]]
    assert [row["name"] for row in rows] == names
    assert layers["Bindings"] == ["image", "logits"]
    assert sum(row["percentage"] for row in rows) == pytest.approx(100)
    assert f"=== Profile ({count['count']} iterations ) ===" in out
    assert "   Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer" in out
    assert "Layer Information:" in out
    convolution = next(layer for layer in layers["Layers"] if layer["ParameterType"] == "Convolution")
    assert convolution["Inputs"][0]["Location"] == "Device"
    assert convolution["Metadata"].startswith("[ONNX Layer: ")


def test_layers_by_name_only_and_not_at_all(engine: Path, trtexec: Callable[..., tuple[str, str]]):
    words = (
        "--loadEngine=model.trt",
        "--shapes=image:1x3x16x16",
        "--exportLayerInfo=l.json",
        "--skipInference",
    )
    _, err = trtexec(*words)
    assert "--profilingVerbosity=detailed tells more" in err
    names = json.loads(Path("l.json").read_text())["Layers"]
    assert names
    assert all(isinstance(name, str) for name in names)
    trtexec(*words, "--profilingVerbosity=none")
    assert json.loads(Path("l.json").read_text())["Layers"] == []


def test_inputs_from_files_outputs_and_references(
    engine: Path, trtexec: Callable[..., tuple[str, str]], rng: np.random.Generator
):
    image = rng.standard_normal((1, 3, 16, 16)).astype(np.float32)
    image.tofile("image.bin")
    words = ("--loadEngine=model.trt", "--shapes=image:1x3x16x16", "--loadInputs=image:image.bin", *QUICK)
    out, _ = trtexec(*words, "--dumpOutput", "--exportOutput=o.json", "--exportTimes=t.json")
    with load(engine) as opened:
        want = opened.run({"image": image})["logits"]
    (row,) = json.loads(Path("o.json").read_text())
    assert (row["name"], row["dimensions"]) == ("logits", "1x10")
    assert np.array_equal(np.array(row["values"], np.float32).reshape(1, 10), want)
    assert "Output Tensors:" in out
    assert "logits: (1x10)" in out
    times = json.loads(Path("t.json").read_text())
    assert len(times) >= 10
    assert all(each["latencyMs"] == each["computeMs"] > 0 for each in times)
    want.tofile("right.bin")
    out, _ = trtexec(*words, "--loadRefOutputs=logits:right.bin", "--accuracyThreshold=1e-6")
    assert "logits (pair 0): loss = 0, threshold = 1e-06: passed" in out
    (want + 1).tofile("wrong.bin")
    compare = ("--loadRefOutputs=logits:wrong.bin", "--accuracyAlgorithm=l1", "--accuracyThreshold=0.5")
    out, err = trtexec(*words, *compare, code=1)
    assert "loss = 1, threshold = 0.5: FAILED" in err
    assert out.splitlines()[-1].startswith("&&&& FAILED ")


def test_a_file_that_is_not_the_size_of_its_input(engine: Path, trtexec: Callable[..., tuple[str, str]]):
    words = ("--loadEngine=model.trt", "--loadInputs=image:valid.npz", "--shapes=image:1x3x16x16")
    _, err = trtexec(*words, code=3)
    assert "is not the size of input 'image'" in err
    assert "expected 3072: float32 of shape 1x3x16x16" in err


def test_bytes_with_channels_innermost_from_a_raw_file(
    folder: Path, trtexec: Callable[..., tuple[str, str]], rng: np.random.Generator
):
    pixels = rng.integers(0, 256, (2, 3, 16, 16)).astype(np.uint8)
    pixels.transpose(0, 2, 3, 1).tofile("image.bin")  # as files of such inputs are for TensorRT
    words = (*BUILD, "--inputIOFormats=uint8:hwc", "--outputIOFormats=fp16:chw", "--shapes=image:2x3x16x16")
    shown = ("--loadInputs=image:image.bin", "--exportOutput=o.json", "--dumpRawBindingsToFile")
    layers = ("--profilingVerbosity=detailed", "--exportLayerInfo=l.json", "--saveEngine=bytes.qrt")
    out, _ = trtexec(*words, *shown, *layers)
    with load(folder / "bytes.qrt") as engine:
        assert [str(spec) for spec in (*engine.inputs, *engine.outputs)] == [
            "image uint8 [n,16,16,3] nhwc",
            "logits float16 [n,10]",
        ]
    (want,) = onnxruntime.InferenceSession("model.onnx").run(None, {"image": pixels.astype(np.float32)})
    (row,) = json.loads(Path("o.json").read_text())
    got = np.array(row["values"]).reshape(2, 10)
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 * np.abs(want).max())
    assert Path("image.input.2.3.16.16.UInt8.raw").read_bytes() == Path("image.bin").read_bytes()
    assert np.fromfile("logits.output.2.10.Half.raw", np.float16).shape == (20,)
    first = json.loads(Path("l.json").read_text())["Layers"][0]["Inputs"][0]
    assert first["Dimensions"] == [2, 3, 16, 16]
    assert first["Format/Datatype"] == "Channel major UInt8 format"
    again, _ = trtexec(
        "--loadEngine=bytes.qrt", "--shapes=image:2x3x16x16", *shown[:1], "--dumpOutput", *QUICK
    )
    assert "logits: (2x10)" in again


def test_a_model_that_cannot_run_at_sizes_that_nobody_gave(
    folder: Path, trtexec: Callable[..., tuple[str, str]]
):
    text = """<ir_version: 8, opset_import: ["": 13]>
    g (float[n,s] x) => (float[n,s] y) <int64[2] shape = {-1, 7}> { h = Reshape(x, shape) y = Add(h, x) }"""
    onnx.save(onnx.parser.parse_model(text), "free.onnx")
    _, err = trtexec("--onnx=free.onnx", "--device=cpu", "--builderOptimizationLevel=0", code=3)
    assert "try --shapes=x:" in err
    assert "x float32 [n,s]" in err


def test_raw_files_are_written_here(engine: Path, trtexec: Callable[..., tuple[str, str]]):
    trtexec("--loadEngine=model.trt", "--shapes=image:1x3x16x16", "--dumpRawBindingsToFile", *QUICK)
    assert Path("image.input.1.3.16.16.Float.raw").stat().st_size == 3 * 16 * 16 * 4
    assert Path("logits.output.1.10.Float.raw").stat().st_size == 40


def test_profiles_are_shown_and_kept_to(engine: Path, trtexec: Callable[..., tuple[str, str]]):
    words = ("--minShapes=image:1x3x16x16", "--optShapes=image:2x3x16x16", "--maxShapes=image:4x3x16x16")
    words = ("--loadEngine=model.trt", *words, "--skipInference")
    out, _ = trtexec(*words, "--dumpOptimizationProfile")
    assert "Model input image (profile 0): min=1x3x16x16, opt=2x3x16x16, max=4x3x16x16" in out
    _, err = trtexec(*words, "--shapes=image:5x3x16x16", code=2)
    assert "outside the profiles" in err
    _, err = trtexec(*words, "--useProfile=1", code=2)
    assert "there is no profile 1" in err


def test_streams_opening_and_the_format(engine: Path, trtexec: Callable[..., tuple[str, str]]):
    shapes = "--shapes=image:1x3x16x16"
    _, err = trtexec("--loadEngine=model.trt", shapes, "--infStreams=2", *QUICK)
    assert "Multiple inference streams" in err
    out, _ = trtexec("--loadEngine=model.trt", "--timeDeserialize")
    assert "Engine deserialized in " in out
    assert "Performance summary" not in out
    out, _ = trtexec("--loadEngine=model.trt", "--getPlanVersionOnly")
    assert f"engine format {FORMAT_VERSION}, for onnxruntime" in out


def test_a_calibration_cache(folder: Path, trtexec: Callable[..., tuple[str, str]]):
    main(["calibrate", "model.onnx", "--calib-data", "calib.npz", "-o", "model.cache", "-q"])
    out, _ = trtexec(*BUILD, "--int8", "--calib=model.cache", "--saveEngine=c.qrt", "--skipInference")
    assert "Engine built in " in out
    _, err = trtexec(*BUILD, "--int8", "--calib=other.cache", code=2)
    assert "there is no file 'other.cache' to take ranges from" in err
    assert "--calib-random to measure speed only" in err
    Path("damaged.cache").write_text("TRT-8601-EntropyCalibration2\nimage: xyz\n")
    out, err = trtexec(*BUILD, "--int8", "--calib=damaged.cache", code=3)
    assert "damaged.cache" in err
    assert out.splitlines()[-1].startswith("&&&& FAILED ")


def test_int8_without_ranges_is_an_error_that_says_what_to_give(
    folder: Path, trtexec: Callable[..., tuple[str, str]]
):
    out, err = trtexec(*BUILD, "--int8", code=2)
    assert "--calib=CACHE, --calib-data=DATA or --calib-random" in err
    assert out.splitlines()[-1].startswith("&&&& FAILED ")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--onxx=model.onnx"], 2, "no trtexec has a flag '--onxx'"),
        ([], 2, "no model was given"),
        (["--onnx=none.onnx", "--device=cpu"], 3, "none.onnx"),
        (["--loadEngine=none.qrt"], 3, "none.qrt"),
        (["--onnx=model.onnx", "--refit"], 2, "--refit cannot be done"),
        ([*BUILD, "--saveEngine=/no/such/folder/m.qrt"], 2, "its folder does not exist"),
        ([*BUILD, "--inputIOFormats=int64:chw"], 2, "input 'image' cannot be int64"),
        ([*BUILD, "--layerOutputTypes=con:fp32", "--precisionConstraints=obey"], 2, "no layer 'con'"),
        ([*BUILD, "--layerPrecisions=con:fp32", "--precisionConstraints=obey"], 2, "no layer 'con'"),
        ([*BUILD, "--layerPrecisions=con:int8", "--precisionConstraints=prefer"], 2, "no layer 'con'"),
        ([*BUILD, "--layerOutputTypes=*:fp16", "--precisionConstraints=obey"], 2, "the libraries of a CPU"),
        ([*BUILD, "--inputIOFormats=int8:chw"], 2, "'image' cannot be int8: there is no range"),
        ([*BUILD, "--inputIOFormats=fp16:chw4"], 2, "chw4 pads 3 channels to a multiple of 4"),
        ([*BUILD, "--optShapes=imag:1x3x16x16"], 2, "no input 'imag'"),
    ],
)
def test_mistakes_end_in_failed(
    folder: Path, trtexec: Callable[..., tuple[str, str]], words: list[str], code: int, message: str
):
    out, err = trtexec(*words, code=code)
    assert message in err
    assert out.splitlines()[0].startswith("&&&& RUNNING TensorRT.trtexec [TensorRT v101600] # trtexec")
    assert out.splitlines()[-1].startswith("&&&& FAILED TensorRT.trtexec [TensorRT v101600] # trtexec")
    assert "Traceback" not in err


def test_a_json_document_alone_on_stdout(engine: Path, trtexec: Callable[..., tuple[str, str]]):
    out, err = trtexec("--loadEngine=model.trt", "--shapes=image:1x3x16x16", "--json", *QUICK)
    found = json.loads(out)
    assert found["device"] == "cpu"
    assert found["summary"]["queries"] >= 10
    assert found["summary"]["latency_ms"]["median"] > 0
    assert "&&&& PASSED" in err


def test_the_shim_verb(folder: Path, trtexec: Callable[..., tuple[str, str]]):
    out, _ = trtexec("--install-shim", ".")
    assert "Wrote trtexec" in out
    assert (folder / "trtexec").exists()


def modelopt_file(name: str) -> Path:
    """A file of nvidia-modelopt; skips where it is not installed."""
    found = importlib.util.find_spec("modelopt")
    if found is None or not found.submodule_search_locations:
        pytest.skip("nvidia-modelopt is not installed: its readers of trtexec's log cannot be tried")
    return Path(next(iter(found.submodule_search_locations))) / name


def module_at(path: Path) -> ModuleType:
    """A module by its file alone: its package imports what reading a log does not need."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_model_optimizer_reads_the_log(engine: Path, trtexec: Callable[..., tuple[str, str]]):
    parser: Any = module_at(modelopt_file(PARSER))
    out, _ = trtexec(*BUILD, "--shapes=image:2x3x16x16")
    built = parser.parse_build_log(out)
    assert built["model_options"] == {"Format": "ONNX", "Model": "model.onnx"}
    assert built["build_options"]["Precision"] == "FP32"
    found = parser.parse_profiling_log(out)
    summary = found["performance_summary"]
    least, most, mean, median, *percentiles = summary["GPU Compute Time"]
    assert least <= median <= most
    assert least <= mean <= most
    assert len(percentiles) == 3
    assert summary["Throughput"] > 0
    assert found["inference_options"]["Iterations"] == "10"
    assert "Selected Device" in found["device_information"]


def test_model_optimizer_measures_with_the_shim(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    modelopt_file("onnx/quantization/autotune/benchmark.py")
    try:
        benchmark = importlib.import_module("modelopt.onnx.quantization.autotune.benchmark")
    except ImportError as error:
        pytest.skip(f"nvidia-modelopt cannot be imported: {error}")
    (tmp_path / "bin").mkdir()
    install_shim(tmp_path / "bin", force=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    words = ["--device=cpu", "--builderOptimizationLevel=0", "--duration=0.05", "--shapes=image:1x3x16x16"]
    measure = benchmark.TrtExecBenchmark(
        timing_cache_file=str(tmp_path / "timing.cache"), warmup_runs=5, timing_runs=10, trtexec_args=words
    )
    latency_ms = measure(str(folder / "model.onnx"), log_file=str(tmp_path / "log"))
    assert 0 < latency_ms < float("inf"), (tmp_path / "log").read_text()
    assert sys.modules["modelopt.onnx.quantization.ort_utils"]._check_for_trtexec().endswith("/bin/trtexec")


def test_the_autotuner_of_model_optimizer_runs_on_the_shim(folder: Path, tmp_path: Path):
    """From the command that its users type: it measures schemes of Q/DQ nodes, and saves the best model."""
    modelopt_file("onnx/quantization/autotune/__main__.py")
    (tmp_path / "bin").mkdir()
    install_shim(tmp_path / "bin", force=False)
    args = "--trtexec_benchmark_args=--device=cpu --builderOptimizationLevel=0 --duration=0.05"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "modelopt.onnx.quantization.autotune", "--onnx_path", "model.onnx"),
            *("--use_trtexec", "--schemes_per_region", "1", "--warmup_runs", "2", "--timing_runs", "5"),
            *(f"{args} --shapes=image:1x3x16x16", "--output_dir", str(tmp_path / "tuned")),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "No module named" in done.stderr:
        pytest.skip(f"nvidia-modelopt cannot be imported: {done.stderr.splitlines()[-1]}")
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert "Autotuning completed successfully" in log
    assert log.count("TrtExec benchmark (median)") >= 3, "the model as it is, a scheme, and the result"
    assert load_model(tmp_path / "tuned" / "optimized_final.onnx").outputs
