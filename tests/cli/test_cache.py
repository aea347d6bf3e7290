# SPDX-License-Identifier: Apache-2.0
"""Calibration caches on the command line: made, looked at, built and quantized from."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from quantrt.calibrate.caches.trt_cache import DEFAULT_HEADER

FAST = ("--warmup", "0.01", "--duration", "0.05", "--max-duration", "0.1", "--min-runs", "3")
BUILD = ("build", "model.onnx", "--int8", "--library", "onnxruntime", *FAST)
CALIBRATE = ("calibrate", "model.onnx", "--calib-data", "calib.npz")


@pytest.fixture
def cache(folder: Path, quantrt_json) -> Path:
    """calibration.cache of model.onnx."""
    data = quantrt_json(*CALIBRATE, "-o", "calibration.cache")
    assert data["header"] == DEFAULT_HEADER
    assert {row["name"] for row in data["tensors"]} == {"image", "h", "r", "p", "f", "logits"}
    return folder / "calibration.cache"


def drop(path: Path, *names: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if line.rpartition(":")[0] not in names))


def replace_line(path: Path, name: str, digits: str) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join(f"{name}: {digits}" if x.startswith(f"{name}:") else x for x in lines) + "\n")


def test_a_cache_is_text_with_what_it_was_made_of_beside_it(cache: Path, quantrt_json):
    first, *lines = cache.read_text().splitlines()
    assert first == DEFAULT_HEADER and len(lines) == 6
    assert Path("calibration.cache.json").is_file()
    data = quantrt_json("inspect", "calibration.cache")
    assert data["origin"]["samples"] == 20
    assert data["tensors"] == quantrt_json(*CALIBRATE, "-o", "again.cache")["tensors"]


def test_the_default_header_is_in_the_help(folder: Path, capsys: pytest.CaptureFixture[str]):
    from quantrt.cli.main import main

    assert main(["calibrate", "-h"]) == 0
    assert DEFAULT_HEADER in capsys.readouterr().out


def test_headers_of_other_versions_and_tables_of_onnxruntime(folder: Path, quantrt_json):
    header = "TRT-100300-MinMaxCalibration"
    data = quantrt_json(*CALIBRATE, "--method", "minmax", "--cache-header", header, "-o", "a.cache")
    assert data["tensorrt_version"] == "10.3.0" and data["algorithm"] == "MinMaxCalibration"
    table = quantrt_json(*CALIBRATE, "--method", "minmax", "-o", "a.flatbuffers")
    assert "ONNX Runtime" in table["header"]
    by_name = {row["name"]: row["scale"] for row in table["tensors"]}
    assert by_name == {row["name"]: row["scale"] for row in data["tensors"]}


def test_a_ranges_file_becomes_a_cache_of_what_is_in_it(folder: Path, quantrt_json):
    quantrt_json(*CALIBRATE, "-o", "m.ranges")
    data = quantrt_json("calibrate", "model.onnx", "--ranges", "m.ranges", "-o", "m.cache")
    whole = {row["name"]: row["scale"] for row in quantrt_json(*CALIBRATE, "-o", "w.cache")["tensors"]}
    part = {row["name"]: row["scale"] for row in data["tensors"]}
    assert part.items() < whole.items()
    assert any("have no scale" in note for note in data["notes"])


def test_an_engine_is_built_on_a_cache_alone(cache: Path, quantrt_json):
    data = quantrt_json(*BUILD, "--calib-cache", str(cache), "-o", "m.qrt")
    report = data["report"]
    assert report["calibration_cache"]["missing"] == {} and report["calibration"] is None
    assert {row["tensor"] for row in report["calibration_cache"]["used"]} >= {"image", "r"}
    assert data["is_calibrated"]


def test_gaps_are_listed_and_data_fill_them(cache: Path, quantrt_json, quantrt_text):
    drop(cache, "r", "image")
    gaps = quantrt_json(*BUILD, "--calib-cache", str(cache), "-o", "m.qrt")["report"]
    assert set(gaps["calibration_cache"]["missing"]) == {"r", "image"}
    assert any("stay float" in note for note in gaps["notes"])
    filled = quantrt_json(*BUILD, "--calib-cache", str(cache), "--calib-data", "calib.npz", "-o", "m.qrt")
    assert any("observed on data instead" in note for note in filled["report"]["notes"])
    assert filled["report"]["calibration"]["tensors"] == 2
    out = quantrt_text("inspect", str(cache), "--model", "model.onnx")
    assert "missing                2" in out and "float because of it" in out


def test_a_quantized_model_has_the_scales_of_the_cache(cache: Path, quantrt_json):
    data = quantrt_json("quantize", "model.onnx", "--calib-cache", str(cache), "-o", "q.onnx")
    assert data["int8_nodes"] >= 2 and data["is_calibrated"]
    assert any("scales are those of" in note for note in data["notes"])
    assert any("biases are not corrected" in note for note in data["notes"])
    model = onnx.load("q.onnx")
    arrays = {x.name: onnx.numpy_helper.to_array(x) for x in model.graph.initializer}
    scales = {row["name"]: row["scale"] for row in quantrt_json("inspect", str(cache))["tensors"]}
    for name in ("image", "r"):
        assert arrays[f"{name}_scale"].tobytes() == np.float32(scales[name]).tobytes()
        assert int(arrays[f"{name}_zero_point"]) == 128


def test_random_ranges_are_branded_by_way_of_a_cache(folder: Path, quantrt_json, quantrt_text):
    out = quantrt_text("calibrate", "model.onnx", "--calib-random", "-o", "random.cache")
    assert "random: the ranges mean nothing" in out
    words = ("quantize", "model.onnx", "--calib-cache", "random.cache", "-o", "q.onnx")
    assert not quantrt_json(*words)["is_calibrated"]


def test_another_checkpoint_is_a_note_and_another_graph_an_error(cache: Path, quantrt_json):
    model = onnx.load("model.onnx")
    array = onnx.numpy_helper.to_array(model.graph.initializer[0]) * 2
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(array, model.graph.initializer[0].name))
    onnx.save(model, "retrained.onnx")
    words = ("inspect", str(cache), "--model")
    assert any(
        "another checkpoint" in note for note in quantrt_json(*words, "retrained.onnx")["model"]["notes"]
    )
    for node in model.graph.node:
        node.output[:] = [name.replace("r", "relu") if name == "r" else name for name in node.output]
        node.input[:] = ["relu" if name == "r" else name for name in node.input]
    onnx.save(model, "renamed.onnx")
    error = quantrt_json(*words, "renamed.onnx", code=3)["error"]
    assert "another graph, 1 of its 6 tensors" in error["message"]
    assert "'r'" in error["got"]
    Path("calibration.cache.json").unlink()
    assert quantrt_json(*words, "renamed.onnx")["model"]["unknown"].keys() == {"r"}


def test_a_cache_without_the_suffix_is_known_by_its_first_line(cache: Path, quantrt_json, quantrt_text):
    cache.rename("calib.bin")
    assert quantrt_json("inspect", "calib.bin")["kind"] == "calibration cache"
    Path("x.txt").write_text("TRANSCRIPT")
    assert "cannot tell" in quantrt_json("inspect", "x.txt", code=2)["error"]["message"]


@pytest.mark.parametrize(
    ("digits", "reason"), [("7f800000", "infinite"), ("7fc00000", "not a number"), ("bf800000", "negative")]
)
def test_a_scale_that_cannot_be_used_is_a_gap(digits: str, reason: str, cache: Path, quantrt_text):
    replace_line(cache, "r", digits)
    out = quantrt_text("inspect", str(cache), "--model", "model.onnx")
    assert reason in out and "invalid                1" in out and "missing                1" in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((*BUILD, "--calib-cache", "no.cache", "-o", "m.qrt"), 3, "no such file"),
        ((*BUILD, "--calib-cache", "model.onnx", "-o", "m.qrt"), 3, "no calibration cache"),
        ((*BUILD, "--calib-cache", "bad.cache", "-o", "m.qrt"), 3, "line 2"),
        ((*BUILD, "--calib-cache", "bad.cache", "--calib-random", "-o", "m.qrt"), 2, "together"),
        (("build", "model.onnx", "--calib-cache", "bad.cache", "-o", "m.qrt"), 2, "int8 and fp8 only"),
        (("quantize", "model.onnx", "--calib-cache", "no.cache", "-o", "q.onnx"), 3, "no such file"),
        (("inspect", "bad.cache"), 3, "line 2"),
        (("inspect", "model.onnx", "--model", "model.onnx"), 2, "belongs to a calibration cache"),
        (("calibrate", "model.onnx", "-o", "m.cache"), 2, "without data"),
        ((*CALIBRATE, "--ranges", "m.ranges", "-o", "m.cache"), 2, "two sources"),
        ((*CALIBRATE, "--ranges", "m.ranges", "-o", "m.ranges"), 2, "what a cache is written of"),
        ((*CALIBRATE, "--cache-header", "TRT-1-x", "-o", "m.ranges"), 2, "of TensorRT's caches"),
        ((*CALIBRATE, "--cache-header", "nonsense", "-o", "m.cache"), 3, "no header"),
        (("calibrate", "--merge", "a.ranges", "-o", "m.cache"), 2, "--merge writes a ranges file"),
        ((*CALIBRATE, "-o", "m.txt"), 2, "cannot write 'm.txt'"),
    ],
)
def test_mistakes_are_answered(words, code: int, said: str, folder: Path, quantrt_json):
    Path("bad.cache").write_text(f"{DEFAULT_HEADER}\nwhat is this?\n")
    error = quantrt_json(*words, code=code)["error"]
    assert said in error["message"]
    assert error["hint"] or error["expected"]
    assert not Path("m.cache").exists() and not Path("m.qrt").exists()
