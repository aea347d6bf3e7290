# SPDX-License-Identifier: Apache-2.0
"""`quantrt quantize` within a budget: what is written, told and refused."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from quantrt.cli.main import main
from quantrt.model.file.save import save_model
from tests.nets import samples
from tests.outlier_net import outlier_model

WORDS = ("quantize", "wide.onnx", "--calib-data", "calib.npz", "-o", "q.onnx", "--method", "minmax")
NOISE = ("--metric", "sqnr", "--max-drop", "0.002")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder: a network of which one product cannot be 8-bit, and data for it."""
    save_model(outlier_model().graph, tmp_path / "wide.onnx")
    inputs = samples(32, 12)
    np.savez(tmp_path / "calib.npz", x=inputs[:24])
    np.savez(tmp_path / "valid.npz", x=inputs[24:], labels=np.arange(8) % 6)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("target", ["ort", "openvino", "tensorrt"])
def test_the_file_is_inside_its_budget_and_says_so(target: str, folder: Path, quantrt_json):
    data = quantrt_json(*WORDS, *NOISE, "--valid-data", "valid.npz", "--target", target)
    budget = data["budget"]
    assert data["passed"] and budget["result"]["drop_ratio"] <= 0.002 < budget["all_int8"]["drop_ratio"]
    assert [row["op_types"] for row in budget["float_layers"]] == [["MatMul"]]
    assert [row["is_best"] for row in budget["rounds"]].count(True) == 1
    assert quantrt_json("inspect", "q.onnx")["budget"] == budget
    if target == "tensorrt":
        assert quantrt_json("inspect", "q.onnx", "--lint", "tensorrt")["passed"]


def test_the_tables_name_what_is_left_float(folder: Path, quantrt_text):
    text = quantrt_text(*WORDS, *NOISE, "--valid-data", "valid.npz")
    for words in (
        "sqnr drop of at most 0.0020, on 8 samples of validation data",
        "all in 8 bits",
        "left float",
    ):
        assert words in text
    assert text.split("Accuracy budget")[1] == quantrt_text("inspect", "q.onnx").split("Accuracy budget")[1]


def test_without_a_budget_nothing_is_measured(folder: Path, quantrt_json):
    data = quantrt_json(*WORDS)
    assert "budget" not in data and "passed" not in data
    assert not onnx.load("q.onnx").metadata_props


def test_calibration_samples_are_measured_on_where_there_are_no_others(folder: Path, quantrt_json):
    assert quantrt_json(*WORDS, "--max-drop", "0.5")["budget"]["measured_on"] == "calibration samples"


def test_labels_make_it_top1(folder: Path, quantrt_json):
    budget = quantrt_json(*WORDS, "--valid-data", "valid.npz", "--max-drop", "1.0")["budget"]
    assert (budget["metric"], budget["samples"]) == ("top1", 8)


def test_what_is_inside_no_budget_is_not_written(folder: Path, capsys: pytest.CaptureFixture[str]):
    words = (*WORDS, "--metric", "sqnr", "--max-drop", "0", "-q")
    assert main([*words, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert not data["passed"] and "a drop of at most 0" in data["expected"] and data["hint"]
    assert not Path("q.onnx").exists()
    assert main([*words]) == 1
    out = capsys.readouterr().out
    assert "FAILED" in out and "nothing is written" in out and "--recipe accurate" in out


def test_without_mixing_it_is_a_check(folder: Path, quantrt_json):
    data = quantrt_json(*WORDS, *NOISE, "--no-mixed", code=1)
    assert data["budget"]["reason"].startswith("not tried") and data["budget"]["rounds"] == []
    assert "--exclude" in data["hint"], "it lost everything: no larger budget is proposed"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--labels", "l.csv"), "--labels belongs to validation data"),
        (("--max-drop", "2"), "cannot use this budget"),
        (("--valid-data", "valid.npz", "--metric", "top"), "unknown metric 'top'"),
        (("--assign-rounds", "0", "--max-drop", "0.1"), "number of rounds"),
        (("--weights", "int4", "--max-drop", "0.1"), "weights alone in 4 bits have none"),
        (("--max-drop", "0.1", "--metric", "top1"), "cannot measure top1 without labels"),
    ],
)
def test_what_cannot_be_asked_for_is_named(words, says: str, folder: Path, quantrt_json):
    assert says in quantrt_json(*WORDS, *words, code=2)["error"]["message"]


def test_random_data_measure_nothing(folder: Path, quantrt_json):
    words = ("quantize", "wide.onnx", "--calib-random", "--max-drop", "0.1", "-o", "q.onnx")
    assert "without data to measure it on" in quantrt_json(*words, code=2)["error"]["message"]
