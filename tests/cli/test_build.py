# SPDX-License-Identifier: Apache-2.0
"""`quantrt build` end to end on a small model, and what the other verbs say of its engine."""

import ast
import json
from pathlib import Path

import numpy as np
import pytest

from quantrt.cli.main import main
from quantrt.device import describe_device, has_bf16

FAST = ("--warmup", "0.01", "--duration", "0.05", "--max-duration", "0.1", "--min-runs", "3")
BUILD = ("build", "model.onnx", "-o", "model.qrt", *FAST)
INT8 = (*BUILD, "--int8", "--calib-data", "calib.npz")


def test_int8_with_validation(folder: Path, quantrt_json, quantrt_text):
    data = quantrt_json(*INT8, "--valid-data", "valid.npz", "--no-mixed", "--report", "report.json")
    assert data["kind"] == "engine"
    report = json.loads(Path("report.json").read_text())
    assert report == data["report"]
    bf16 = ["openvino bf16", "openvino int8+bf16"] if has_bf16(describe_device(with_gpu=False)["isa"]) else []
    assert {row["name"] for row in report["candidates"]} == {
        f"{library} {precision}" for library in ("onnxruntime", "openvino") for precision in ("fp32", "int8")
    } | {*bf16}
    assert report["verdict"]["checked_on"] == "validation data"
    assert quantrt_json("inspect", "model.qrt")["report"] == report
    out = quantrt_text("inspect", "model.qrt", "--layers")
    assert "float model" in out
    assert report["verdict"]["reason"].split()[0] in out


def test_the_engine_runs_and_is_close_to_the_model(folder: Path, quantrt_json):
    quantrt_json(*INT8, "--valid-data", "valid.npz")
    data = quantrt_json("run", "model.qrt", "--inputs", "valid.npz", "--batch-size", "4", "-o", "out.npz")
    assert data["outputs"]["logits"]["shape"] == [30, 10]
    assert quantrt_json("compare", "model.onnx", "model.qrt", "--data", "valid.npz")["passed"] is True
    assert len(quantrt_json("bench", "model.onnx", "model.qrt", *FAST)["ratios"]) == 1


def test_float_only(folder: Path, quantrt_json):
    data = quantrt_json(*BUILD)
    assert data["precision"] == "fp32"
    assert data["precision_counts"].keys() == {"fp32"}


def test_from_a_ranges_file(folder: Path, quantrt_json):
    quantrt_json("calibrate", "model.onnx", "--calib-data", "calib.npz", "-o", "model.ranges")
    data = quantrt_json(*BUILD, "--int8", "--ranges", "model.ranges", "--valid-data", "valid.npz")
    assert data["report"]["calibration"]["samples"] == 20


def test_an_impossible_budget_ships_the_float_engine_and_says_so(folder: Path, quantrt_json, quantrt_text):
    words = (*INT8, "--valid-data", "valid.npz", "--metric", "sqnr", "--max-drop", "0")
    data = quantrt_json(*words)
    assert data["precision"] == "fp32"
    assert data["report"]["verdict"]["shipped"].endswith("fp32")
    assert "is shipped" in quantrt_text("inspect", "model.qrt")


def test_a_metric_of_ones_own_from_the_present_folder(folder: Path, quantrt_json):
    Path("my_metric.py").write_text(
        "from pathlib import Path\n"
        "calls = []\n"
        "def score(outputs, labels):\n"
        "    calls.append((outputs['logits'].shape, labels['labels'].shape))\n"
        "    Path('called').write_text(repr(calls))\n"
        "    return 1.0\n"
    )
    quantrt_json(*INT8, "--valid-data", "valid.npz", "--metric", "my_metric:score")
    first, *later = ast.literal_eval(Path("called").read_text())
    assert first == ((8, 10), (8,))
    assert set(later) <= {((30, 10), (30,))}, "only a candidate that is surely faster than float is checked"


def test_what_a_function_of_the_users_prints_is_no_part_of_the_document(folder: Path, capsys):
    Path("my_samples_that_print.py").write_text(
        "import numpy as np\n"
        "def load_data():\n"
        "    print('reading')\n"
        "    yield {'image': np.ones((1, 3, 16, 16), np.float32)}\n"
    )
    words = ("calibrate", "model.onnx", "--calib-data", "my_samples_that_print:load_data", "-o", "m.ranges")
    assert main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["samples"] == 1 and "reading" in err


def test_libraries_can_be_left_out(folder: Path, quantrt_json):
    data = quantrt_json(*BUILD, "--library", "openvino")
    assert {row["name"] for row in data["report"]["candidates"]} == {"openvino fp32"}
    assert data["library"] == "openvino"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        pytest.param((*INT8, "--metric", "topp1"), 2, "topp1", id="unknown metric"),
        pytest.param((*INT8, "--metric", "nothing:here"), 2, "nothing:here", id="metric that is not there"),
        pytest.param((*INT8, "--metric", "top1"), 2, "without labels", id="top1 without labels"),
        pytest.param((*INT8, "--exclude", "/no/such/*"), 2, "/no/such/*", id="pattern that matches nothing"),
        pytest.param((*BUILD, "--int8", "--calib-data", "nan.npz"), 3, "NaN", id="NaN"),
        pytest.param((*BUILD, "--int8", "--calib-data", "no.npz"), 2, "no.npz", id="no data"),
        pytest.param((*BUILD, "--int8", "--ranges", "no.ranges"), 3, "no.ranges", id="no ranges"),
        pytest.param(("build", "xmodel.onnx", "-o", "m.qrt"), 3, "xmodel.onnx", id="no model"),
    ],
)
def test_what_cannot_be_built(words: tuple[str, ...], code: int, says: str, folder: Path, quantrt_json):
    with np.load("calib.npz") as arrays:
        image = arrays["image"]
    image[3, 0, 0, 0] = np.nan
    np.savez("nan.npz", image=image)
    error = quantrt_json(*words, code=code)["error"]
    assert says in f"{error['message']} {error['got']}"
    assert not list(folder.glob("*.qrt"))


def test_inputs_and_outputs_of_other_types(folder: Path, quantrt_json, quantrt_text, capsys):
    edges = ("--input-types", "image:fp16", "--input-layouts", "image:nhwc", "--output-types", "logits:int8")
    data = quantrt_json(*INT8, "--valid-data", "valid.npz", *edges)
    assert data["inputs"] == ["image float16 [n,16,16,3] nhwc"]
    assert data["outputs"][0].startswith("logits int8 [n,10] scale ")
    assert "nhwc" in quantrt_text("inspect", "model.qrt")
    limits = ("--min-sqnr", "15")
    assert (
        quantrt_json("compare", "model.onnx", "model.qrt", "--data", "valid.npz", *limits)["passed"] is True
    )
    main(["compare", "model.onnx", "model.qrt", "--data", "valid.npz", "--layers"])
    assert "its inputs are not as those of 'model.onnx'" in capsys.readouterr().err
    images = np.load("valid.npz")["image"].transpose(0, 2, 3, 1)
    np.savez("nhwc.npz", image=np.ascontiguousarray(images))
    data = quantrt_json("run", "model.qrt", "--inputs", "nhwc.npz", "-o", "out.npz")
    assert data["outputs"]["logits"] == {"dtype": "int8", "shape": [30, 10]}
    quantrt_json("bench", "model.qrt", *FAST)


def test_a_quantization_level_is_in_the_layers_of_the_engine(folder: Path, quantrt_json):
    np.savez("calib4.npz", image=np.load("calib.npz")["image"][:4])
    data = quantrt_json(*BUILD, "--int8", "--calib-data", "calib4.npz", "--quantization-level", "1")
    notes = " ".join(data["report"]["notes"])
    assert "nothing was quantized: quantization level 1 leaves" in notes
    assert data["precision"] == "fp32"


def test_a_level_that_leaves_nothing_is_an_error_of_quantize(folder: Path, capsys):
    command = ("quantize", "model.onnx", "--calib-data", "calib.npz", "-o", "q.onnx")
    assert main([*command, "--quantization-level", "2", "-q"]) == 3
    assert "quantization level 2 leaves 2 of 2 layers in float" in capsys.readouterr().err


def test_an_unknown_level_names_those_that_are_known(folder: Path, capsys):
    assert main([*INT8, "--quantization-level", "2.6"]) == 2
    assert "one of 1, 2, 2.5, 3, 4, auto" in capsys.readouterr().err
