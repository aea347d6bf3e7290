# SPDX-License-Identifier: Apache-2.0
"""Failures of every verb, provoked: each ends in a line to type, of commands and options that exist."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from quantrt.cli.main import COMMANDS, main
from quantrt.cli.next_command import names_command
from quantrt.cli.parser import make_parser, verb_parsers
from quantrt.plan.serialize import save_plan
from quantrt.trtexec.flags.flags import FLAGS
from tests.plans import make_plan

VERBS = {command.name for command in COMMANDS}


@dataclass(frozen=True)
class Case:
    """A command line, and what its last line has to have."""

    words: str
    tries: str
    code: int = 2


CASES = (
    Case("build modle.onnx -o m.qrt", "model.onnx", 3),
    Case("build broken.onnx -o m.qrt", "quantrt inspect broken.onnx", 3),
    Case("inspect link.onnx", "ls -lL", 3),
    Case("build model.onnx --valid-data onehot.npz -o m.qrt", "labels.argmax(axis=1)", 3),
    Case("calibrate model.onnx --calib-data calib.npz --preprocess imagenet -o m.ranges", "mean=imagenet"),
    Case("build model.onnx --saveEngine=m.qrt", "quantrt trtexec --saveEngine"),
    Case("inspect cut.onnx", "ls -l 'cut.onnx'", 3),
    Case("build model.onnx -o model.txt", "-o 'model.qrt'"),
    Case("build model.onnx --max-drop 5 -o m.qrt", "--max-drop 0.01"),
    Case("build model.onnx --int8 --calib-data nan.npz -o m.qrt", "numpy.nan_to_num", 3),
    Case("quantize model.onnx --calib-random -o model.onnx", "-o 'model.new.onnx'"),
    Case("run linear.qrt --inputs calib.npz -o calib.npz", "-o 'calib.new.npz'"),
    Case("trtexec onnx=model.onnx", "--onnx=model.onnx"),
    Case("build model.onnx --int8 -o m.qrt", "--calib-data"),
    Case("build model.onnx --int8 --calib-random --exclude '/stem/Con' -o m.qrt", "--exclude /stem/Conv"),
    Case("build model.onnx --int8 --calib-data calibb.npz -o m.qrt", "--calib-data calib.npz"),
    Case("build model.onnx --int8 --calib-data other.npz -o m.qrt", "quantrt inspect model.onnx", 3),
    Case("build model.onnx --int8 --calib-data broken.npz -o m.qrt", "python -m zipfile -t", 3),
    Case("build model.onnx --int8 --calib-cache none.cache -o m.qrt", "quantrt calibrate", 3),
    Case("build model.onnx --int8 --calib-cache other.cache -o m.qrt", "--calib-data P", 3),
    Case("build model.onnx --library openvine -o m.qrt", "--library openvino"),
    Case("build model.onnx --metric top2 --int8 --calib-random -o m.qrt", "--metric top1"),
    Case("build model.onnx --device cuda --int8 --calib-random -o m.qrt", "quantrt", 4),
    Case("calibrate model.onnx --calib-data loader.py -o m.ranges", "loader:load_data"),
    Case("calibrate model.onnx --calib-data nowhere:load -o m.ranges", "quantrt calibrate -h"),
    Case("calibrate model.onnx -o m.ranges", "--calib-data P"),
    Case("calibrate model.onnx --calib-data empty -o m.ranges", "quantrt", 3),
    Case("calibrate model.onnx --calib-data calib.npz -o m.txt", "-o 'm.ranges'"),
    Case("calibrate model.onnx --calib-data calib.npz --cache-header X -o m.cache", "--cache-header TRT-", 3),
    Case("quantize model.onnx -o q.onnx", "--activations per-token"),
    Case("quantize model.onnx --calib-data calib.npz --target openvine -o q.onnx", "--target openvino"),
    Case("quantize model.onnx --ranges broken.ranges -o q.onnx", "quantrt calibrate", 3),
    Case("run broken.qrt --inputs calib.npz -o o.npz", "quantrt", 3),
    Case("run m.txt --inputs calib.npz -o o.npz", "quantrt run -h"),
    Case("run linear.qrt --inputs calib.npz -o o.npz", "quantrt inspect linear.qrt", 3),
    Case("bench linaer.qrt", "linear.qrt", 3),
    Case("bench linear.qrt --batch 0", "quantrt bench -h"),
    Case("bench linear.qrt --shape y=1x3", "--shape x="),
    Case("compare model.onnx linear.qrt --data calib.npz", "quantrt inspect"),
    Case("compare model.onnx model.onnx --data calib.npz --bisect", "--bisect -o FOLDER"),
    Case("inspect none.onnx", "ls .", 3),
    Case("inspect model.txt", "quantrt inspect -h"),
    Case("inspect broken.cache", "sed -n", 3),
    Case("inspect wide.cache", "iconv", 3),
    Case("inspect twice.cache", "sed -i", 3),
    Case("inspect headless.cache", "sed -i", 3),
    Case("explain model.onnx", "quantrt inspect model.onnx"),
    Case("explain linear.qrt --layer nothing", "quantrt explain ENGINE --all"),
    Case("tune none.json --max-drop 0.1", "--tables FILE.json", 3),
    Case("tune broken.json --max-drop 0.1", "--tables FILE.json", 3),
    Case("pareto none.json", "--tables FILE.json", 3),
    Case("report model.onnx -o r.html", "quantrt", 3),
    Case("report linear.qrt -o no/r.html", "mkdir -p"),
    Case("trtexec --onnx=modle.onnx", "model.onnx", 3),
    Case("trtexec --onnx=model.onnx --int8", "--calib-random"),
    Case("trtexec --onnx=model.onnx --int8 --calib=none.cache", "--calib-data"),
    Case("trtexec --onnx=model.onnx --optShape=image:1x1x64x64", "--optShapes"),
    Case("trtexec --onnx=model.onnx --useDLACore=0", "without --useDLACore"),
    Case("trtexec --loadEngine=linaer.qrt", "linear.qrt", 3),
    Case("check model.onnx --device h2000", "quantrt check model.onnx --device"),
    Case("check none.onnx", "ls .", 3),
    Case("completion tcsh", "completion -h"),
    Case("doctor --jsn", "--json"),
    Case("bild model.onnx", "quantrt build"),
)


@pytest.fixture
def folder(demo_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, an engine of another, data, and damaged files of every kind."""
    shutil.copy(demo_dir / "digits_resnet.onnx", tmp_path / "model.onnx")
    (tmp_path / "cut.onnx").write_bytes((tmp_path / "model.onnx").read_bytes()[:100_000])
    with np.load(demo_dir / "calibration.npz") as arrays:
        np.savez(tmp_path / "calib.npz", **{name: arrays[name][:4] for name in arrays})
    np.savez(tmp_path / "other.npz", image=np.zeros((2, 3), np.float32))
    np.savez(tmp_path / "nan.npz", image=np.full((1, 1, 64, 64), np.nan, np.float32))
    save_plan(make_plan("onnxruntime"), tmp_path / "linear.qrt")
    np.savez(tmp_path / "onehot.npz", image=np.zeros((2, 1, 64, 64), np.float32), labels=np.eye(10)[:2])
    (tmp_path / "link.onnx").symlink_to("gone.onnx")
    (tmp_path / "loader.py").write_text("def load_data(): ...")
    (tmp_path / "empty").mkdir()
    for name in ("broken.onnx", "broken.npz", "broken.qrt", "broken.ranges", "broken.json", "model.txt"):
        (tmp_path / name).write_bytes(b"\x08\x99not what it should be")
    lines = {
        "other.cache": "TRT-8601-EntropyCalibration2\nnothing: 3d000000\n",
        "broken.cache": "TRT-8601-EntropyCalibration2\nimage 3d000000\n",
        "twice.cache": "TRT-8601-EntropyCalibration2\nimage: 3d000000\nimage: 3e000000\n",
        "headless.cache": "image: 3d000000\n",
    }
    for name, text in lines.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "wide.cache").write_text(lines["twice.cache"], encoding="utf-16")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words_of(command: str) -> list[str]:
    return [word.strip("'") for word in command.split(" ")]


def check_names(last: str, verb: str) -> None:
    """The verbs of QuantRT's in a line exist, and its options are theirs or those of the verb that failed."""
    parsers = verb_parsers(make_parser(COMMANDS))
    verbs = re.findall(r"\bquantrt ([a-z]+)", last)
    assert set(verbs) <= parsers.keys(), last
    texts = [parsers[name].format_help() for name in {*verbs, verb}]
    known = {flag.name for flag in FLAGS} if verb == "trtexec" else set()
    for option in re.findall(r"(?<![\w-])--[A-Za-z][\w-]*", last):
        assert option in known or any(option in text for text in texts), f"{option} of: {last}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
def test_a_failure_ends_in_what_to_type(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]):
    words = words_of(case.words)
    before = sorted(path.name for path in folder.iterdir())
    assert main(words) == case.code
    lines = capsys.readouterr().err.strip().splitlines()
    last = next(line for line in reversed(lines) if not line.startswith("&&&&"))
    assert last.startswith("  try "), lines
    assert case.tries in last
    assert names_command(last.removeprefix("  try ")), last
    if words[0] in VERBS:
        check_names(last, words[0])
    assert sorted(path.name for path in folder.iterdir()) == before, "nothing is left behind"


def test_the_table_has_every_verb():
    assert {case.words.split()[0] for case in CASES} >= VERBS


def test_json_has_the_same(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["build", "model.onnx", "--library", "openvine", "-o", "m.qrt", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)["error"]
    assert document["hint"] == "--library openvino"
