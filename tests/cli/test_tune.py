# SPDX-License-Identifier: Apache-2.0
"""`quantrt tune` and `quantrt pareto` on tables that were written before."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from quantrt.assign.tables.cost_model import CostModel
from quantrt.assign.tables.region import Region
from quantrt.assign.tables.sizes import SizeModel
from quantrt.assign.tables.tables import Tables, write_tables
from quantrt.cli.main import main
from quantrt.model.load import load_model
from tests.unit.assign.tables.assign_tables import NAMES, tables


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_tables(tables(), tmp_path / "model.tables.json")
    return tmp_path / "model.tables.json"


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_tighter_budget_keeps_more_float(path: Path, capsys: pytest.CaptureFixture[str]):
    wide = answer(capsys, "tune", str(path), "--max-drop", "0.1")
    tight = answer(capsys, "tune", str(path), "--max-drop", "0.01")
    assert wide["quantized"] > tight["quantized"] > 0
    assert wide["predicted_ms"] < tight["predicted_ms"]
    assert {row["name"] for row in tight["float"]} >= {"b", "f"}
    assert len(wide["engines"]) == 2


def test_noise_and_time_can_be_asked_for(path: Path, capsys: pytest.CaptureFixture[str]):
    assert answer(capsys, "tune", str(path), "--max-noise", "1e-3")["noise_ratio"] <= 1e-3
    assert answer(capsys, "tune", str(path), "--max-ms", "4.6")["predicted_ms"] <= 4.6


def test_the_text_says_which_regions_stay_float_and_why(path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["tune", str(path), "--max-noise", "1e-3"]) == 0
    text = capsys.readouterr().out
    assert "4 in 8 bits, 2 float" in text
    assert "kept float: damage" in text


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "one thing can be asked for"),
        (["--max-drop", "0.1", "--max-ms", "3"], 2, "one thing can be asked for"),
        (["--max-drop", "-1"], 2, "cannot use --max-drop"),
        (["--max-drop", "nan"], 2, "cannot use --max-drop"),
        (["--max-ms", "0.5"], 1, "no assignment"),
        (["--max-time-ms", "0.5"], 1, "no assignment"),
        (["--max-size-mb", "1"], 3, "how large regions are"),
        (["--max-drop", "0.1", "--exclude", "q"], 2, "no region of the tables has a layer 'q'"),
        (["--max-drop", "0.1", "-o", "x.qrt"], 2, "--output is for --build alone"),
        (["--max-drop", "0.1", "--build", "m.onnx"], 2, "has to be written"),
        (["--max-drop", "0.1", "--build", "m.onnx", "-o", "x.qrt"], 2, "without calibration"),
    ],
)
def test_what_cannot_be_answered(path: Path, capsys, words: list[str], code: int, message: str):
    assert main(["tune", str(path), *words]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (tables(engines=()), "no measured engine"),  # of a build that was stopped
        (tables(damages={}), "an engine beyond it whose noise is not known"),  # of one that needed no damages
    ],
)
def test_a_drop_that_nothing_was_measured_for_is_not_guessed(tmp_path: Path, capsys, made: Tables, what: str):
    write_tables(made, tmp_path / "t.json")
    assert main(["tune", str(tmp_path / "t.json"), "--max-drop", "0.0005"]) == 3
    assert what in capsys.readouterr().err


def test_files_that_hold_no_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert main(["pareto", str(other)]) == 3
    assert "holds no assignment tables" in capsys.readouterr().err
    assert main(["tune", str(tmp_path / "none.json"), "--max-drop", "0.1"]) == 3


@pytest.mark.parametrize("words", [["tune", "m.onnx", "--max-drop", "0.01"], ["pareto", "m.onnx"]])
def test_a_model_in_the_place_of_tables(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "what `quantrt build --tables` wrote (.json), or an engine (.qrt)" in error
    assert "quantrt build m.onnx --int8 --calib-data P --tables m.tables.json -o m.qrt" in error


def test_the_front_goes_from_fast_to_float(path: Path, capsys: pytest.CaptureFixture[str]):
    front = answer(capsys, "pareto", str(path))["front"]
    times = [row["predicted_ms"] for row in front]
    noise = [row["noise_ratio"] for row in front]
    assert times == sorted(times)
    assert noise == sorted(noise, reverse=True)
    assert front[-1]["quantized"] == 0
    assert len(front) > 2


def test_the_front_is_drawn(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    picture = tmp_path / "front.svg"
    assert main(["pareto", str(path), "--svg", str(picture)]) == 0
    assert "8-bit regions" in capsys.readouterr().out
    root = ElementTree.fromstring(picture.read_text())
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    assert circles
    assert all(0 <= float(one.attrib["cx"]) <= 640 and 0 <= float(one.attrib["cy"]) <= 400 for one in circles)


def test_the_front_is_drawn_in_pixels(path: Path, tmp_path: Path):
    picture = tmp_path / "front.png"
    assert main(["pareto", str(path), "--png", str(picture)]) == 0
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape == (800, 1280, 3)
    blue = np.argwhere((pixels == np.array([0x25, 0x63, 0xEB])).all(axis=2))
    (top, left), (bottom, right) = blue.min(axis=0), blue.max(axis=0)
    assert right - left > 400 and bottom - top > 50, "the line goes across"


def test_the_front_is_a_page(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "front.html"
    front = answer(capsys, "pareto", str(path), "--html", str(page))["front"]
    root = ElementTree.fromstring(page.read_text().removeprefix("<!doctype html>"))
    assert len(root.findall(".//tr")) == len(front) + 1
    assert root.find(".//{http://www.w3.org/2000/svg}polyline") is not None


@pytest.mark.parametrize("kind", ["svg", "png", "html"])
def test_a_picture_with_another_suffix_is_refused(kind: str, path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["pareto", str(path), f"--{kind}", "front.pdf"]) == 2
    assert f"'.{kind}'" in capsys.readouterr().err


def test_some_layers_may_have_to_be_float(path: Path, capsys: pytest.CaptureFixture[str]):
    free = answer(capsys, "tune", str(path), "--max-noise", "1")
    bound = answer(capsys, "tune", str(path), "--max-noise", "1", "--only", "[abc]", "--exclude", "b")
    assert free["quantized"] > bound["quantized"] == 2


def test_a_size_can_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    sizes = SizeModel({name: {"fp32": 400_000, "int8": 100_000} for name in NAMES}, 50_000)
    path = tmp_path / "t.json"
    write_tables(tables(sizes=sizes), path)
    half = answer(capsys, "tune", str(path), "--max-size-ratio", "0.6")
    assert half["predicted_bytes"] <= 0.6 * half["float_bytes"]
    assert answer(capsys, "tune", str(path), "--max-size-mb", "1.9")["quantized"] == 2
    assert main(["tune", str(path), "--max-size-mb", "1.9"]) == 0
    assert "1.85 MB, 0.76 of the float model" in capsys.readouterr().out


def test_what_was_found_is_built(folder: Path, quantrt_json):
    """A build of one made-up assignment: the guard and the constraints are those of any build."""
    model = load_model(folder / "model.onnx")
    names = [node.name or "" for node in model.graph.graph]
    regions = tuple(Region(name, (name,), ("Conv",)) for name in names if "Conv" in name or "Gemm" in name)
    float_ms = dict.fromkeys((region.name for region in regions), 1.0)
    made = Tables(
        fingerprint=model.fingerprint,
        library="onnxruntime",
        metric="sqnr",
        samples=4,
        regions=regions,
        damages={name: {"fp32": 0.0, "int8": 1e-6} for name in float_ms},
        costs=CostModel({name: {"fp32": 1.0, "int8": 0.5} for name in float_ms}, (), 0.1),
    )
    write_tables(made, folder / "t.json")
    words = ("tune", "t.json", "--max-noise", "1e-6", "--build", "model.onnx", "-o", "tuned.qrt")
    data = quantrt_json(
        *words,
        "--calib-data",
        "calib.npz",
        "--warmup",
        "0.01",
        "--duration",
        "0.02",
        "--max-duration",
        "0.05",
    )
    assert (folder / "tuned.qrt").exists()
    names_tried = {row["name"] for row in data["report"]["candidates"]}
    assert names_tried == {"onnxruntime fp32", "onnxruntime int8"}
    other = replace(made, fingerprint=tables().fingerprint)
    write_tables(other, folder / "other.json")
    failed = quantrt_json("tune", "other.json", *words[2:], "--calib-data", "calib.npz", code=3)
    assert "another model" in failed["error"]["message"]
