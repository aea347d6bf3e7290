# SPDX-License-Identifier: Apache-2.0
"""A command line that cannot work: what it says, what it returns, and that it does so before any work."""

import json
from pathlib import Path

import pytest

from quantrt.cli.main import main
from quantrt.cli.verbs import doctor

BUILD = ["build", "model.onnx", "-o", "model.qrt"]


@pytest.mark.parametrize(
    ("words", "says", "tries"),
    [
        pytest.param([], "no command was given", "quantrt -h", id="nothing"),
        pytest.param(["bildd"], "unknown command 'bildd'", "quantrt build", id="unknown verb"),
        pytest.param(["frobnicate"], "unknown command 'frobnicate'", "quantrt -h", id="nothing like it"),
        pytest.param(
            [*BUILD, "--itn8"], "unknown option '--itn8' of quantrt build", "--int8", id="unknown flag"
        ),
        pytest.param(
            ["build", "--itn8"], "unknown option '--itn8'", "--int8", id="flag before what is missing"
        ),
        pytest.param(
            [*BUILD, "--saveEngine=m.qrt"],
            "unknown option '--saveEngine'",
            "quantrt trtexec --saveEngine",
            id="trtexec's flag",
        ),
        pytest.param(
            [*BUILD, "--layerPrecisions=a:fp32"],
            "unknown option",
            "--layer-precisions",
            id="trtexec's spelling",
        ),
        pytest.param(["run", "m.qrt", "--data", "d.npz"], "unknown option '--data'", "--inputs", id="data"),
        pytest.param([*BUILD, "--inputs=d.npz"], "unknown option '--inputs'", "--calib-data", id="inputs"),
        pytest.param([*BUILD, "--device=gpu"], "unknown value 'gpu'", "--device cuda", id="another word"),
        pytest.param([*BUILD, "--thread=2"], "unknown option '--thread'", "--threads", id="no abbreviations"),
        pytest.param(
            ["--jsn", "doctor"], "unknown option '--jsn' of quantrt", "--json", id="flag before the verb"
        ),
        pytest.param(["doctor", "-z"], "unknown option '-z'", "-h", id="short flag"),
        pytest.param(
            ["build", "m.onnx"], "the following arguments are required: -o", "build -h", id="no output"
        ),
        pytest.param(
            [*BUILD, "--max-drop", "1%"], "invalid float value: '1%'", "--max-drop 0.01", id="percent"
        ),
        pytest.param([*BUILD, "--max-drop", "x"], "invalid float value: 'x'", "build -h", id="not a number"),
        pytest.param([*BUILD, "--max-drop", "-1"], "cannot use this budget", None, id="negative number"),
        pytest.param([*BUILD, "--max-drop", "7"], "cannot use this budget", None, id="out of bounds"),
        pytest.param(
            [*BUILD, "--method", "entropi"], "unknown value 'entropi' of --method", "entropy", id="bad choice"
        ),
        pytest.param([*BUILD, "--int8"], "without calibration", "--calib-data", id="int8 without data"),
        pytest.param(
            [*BUILD, "--int8", "--calib-data", "a", "--calib-random"],
            "together",
            "--calib-data",
            id="two sources",
        ),
        pytest.param([*BUILD, "--calib-data", "a"], "neither was asked", "--int8", id="data without int8"),
        pytest.param(
            [*BUILD, "--activations", "per-token"], "neither was asked", "--int8", id="rows without int8"
        ),
        pytest.param(
            ["quantize", "m.onnx", "-o", "q.onnx", "--activations", "per-tokn"],
            "unknown value 'per-tokn' of --activations",
            "per-token",
            id="no such scales",
        ),
        pytest.param(
            ["quantize", "m.onnx", "-o", "q.onnx", "--activations", "per-token", "--weights", "int4"],
            "activations beside weights in 4 bits are floats",
            "--weights int8",
            id="rows beside int4",
        ),
        pytest.param([*BUILD, "--fp8", "--calib-random"], "fp8 on a CPU", "--device cuda", id="fp8 on CPU"),
        pytest.param([*BUILD, "--labels", "a"], "--labels belongs to", "--valid-data", id="labels alone"),
        pytest.param(["build", "m.onnx", "-o", "m.bin"], "cannot write 'm.bin'", None, id="wrong suffix"),
        pytest.param(
            ["calibrate", "--merge", "a.ranges", "b.ranges", "-o", "b.ranges"],
            "cannot write 'b.ranges' in place of what is read",
            "-o 'b.new.ranges'",
            id="merged into one of the parts",
        ),
        pytest.param(
            ["tune", "e.qrt", "--max-drop", "0.1", "--build", "m.onnx", "-o", "e.qrt"],
            "cannot write 'e.qrt' in place of what is read",
            "-o 'e.new.qrt'",
            id="built over its tables",
        ),
        pytest.param(
            [*BUILD, "--report", "m.json", "--tables", "./m.json"],
            "in place of",
            "--report 'm.new.json'",
            id="one file for two",
        ),
        pytest.param(["build", "m.onnx", "-o", "no/m.qrt"], "folder does not exist", "mkdir", id="no folder"),
        pytest.param(["calibrate", "-o", "x.ranges"], "cannot tell what to calibrate", None, id="no model"),
        pytest.param(["calibrate", "m.onnx", "-o", "x.ranges"], "without data", None, id="no data"),
        pytest.param(["calibrate", "m.onnx"], "without a file to write", None, id="nothing to write"),
        pytest.param(
            ["calibrate", "--diff", "a.ranges", "b.ranges", "-o", "x.svg"],
            "--diff writes no file",
            "--plot",
            id="a written diff",
        ),
        pytest.param(
            ["calibrate", "--plot", "a.ranges", "b.ranges", "c.ranges", "-o", "x.svg"],
            "cannot draw ranges",
            None,
            id="three files in a picture",
        ),
        pytest.param(
            ["calibrate", "m.onnx", "--diff", "a.ranges", "b.ranges"],
            "--diff reads ranges files alone\n  got 'm.onnx' beside it",
            None,
            id="a diff of a model",
        ),
        pytest.param(
            ["compare", "a.onnx", "b.qrt", "--data", "d.npz", "--reference", "--layers"],
            "--reference compares codes alone",
            "--layers",
            id="codes and layers",
        ),
        pytest.param(
            ["compare", "a.onnx", "b.onnx", "--data", "d.npz", "--metric", "top1"],
            "unknown option '--metric'",
            "quantrt compare -h",
            id="an option that is like none",
        ),
        pytest.param(
            ["inspect", "m.qrt", "--lint", "tensorrt"], "--lint is for models", None, id="lint of an engine"
        ),
        pytest.param(
            ["calibrate", "m.onnx", "--merge", "a.ranges", "-o", "x.ranges"],
            "what to calibrate",
            None,
            id="both",
        ),
        pytest.param(["quantize", "m.onnx", "-o", "q.onnx"], "without ranges", None, id="no ranges"),
        pytest.param(
            ["quantize", "m.onnx", "-o", "q.onnx", "--target", "ortt"], "'ortt'", None, id="unknown target"
        ),
        pytest.param(
            ["run", "m.qrt", "--inputs", "a.npz", "-o", "o.npz", "--batch-size", "0"],
            "--batch-size 0",
            None,
            id="0",
        ),
        pytest.param(
            ["run", "m.txt", "--inputs", "a.npz", "-o", "o.npz"], "cannot run 'm.txt'", None, id="kind"
        ),
        pytest.param(["inspect", "m.txt"], "cannot tell what 'm.txt' is", None, id="inspect what?"),
        pytest.param(["completion", "tcsh"], "'tcsh'", None, id="unknown shell"),
    ],
)
def test_usage_errors(
    words: list[str],
    says: str,
    tries: str | None,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert says in err
    assert "Traceback" not in err
    if tries is not None:
        assert tries in err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == [], "nothing was written"


def test_json_turns_an_error_into_a_document(capsys: pytest.CaptureFixture[str]):
    assert main(["build", "m.onnx", "--jsn", "--json"]) == 2
    out, err = capsys.readouterr()
    document = json.loads(out)["error"]
    assert document["type"] == "UsageError"
    assert document["exit_code"] == 2
    assert document["message"] in err


def test_traceback_on_demand(capsys: pytest.CaptureFixture[str]):
    assert main(["build", "--traceback", "--itn8"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last)")
    assert "error: unknown option" in err


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 4, "out of memory"),
        (ZeroDivisionError("division by zero"), 70, "this is a bug"),
        (OSError(28, "No space left on device", "a.qrt"), 4, "No space left on device"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_what_a_verb_raises(
    error: BaseException,
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    def fail() -> None:
        raise error

    monkeypatch.setattr("quantrt.device.describe_device", fail)
    assert main(["doctor"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert "Traceback" not in err


def test_the_verbs_are_thin():
    """A verb's module is loaded for `-h`, so it must not load a library itself."""
    assert not hasattr(doctor, "describe_device")
