# SPDX-License-Identifier: Apache-2.0
"""Every failure ends in a command to run, which exists."""

import inspect
import shlex
from pathlib import Path

import pytest

from quantrt import errors
from quantrt.cli.failure import explain
from quantrt.cli.main import COMMANDS
from quantrt.cli.next_command import next_command, with_command
from quantrt.cli.parser import parse
from quantrt.errors import DataError, DeviceError, InternalError, ModelError, QuantRtError, UsageError
from quantrt.ir.missing_file import nearest_file

VERBS = [command.name for command in COMMANDS]
BUILD = ["build", "a model.onnx", "-o", "m.qrt", "--int8"]
KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, QuantRtError)]


@pytest.mark.parametrize(
    ("error", "argv", "want"),
    [
        (UsageError("x"), BUILD, "quantrt build -h"),
        (UsageError("x"), ["--json"], "quantrt -h"),
        (ModelError("x"), BUILD, "quantrt inspect 'a model.onnx'"),
        (DataError("x"), ["run", "m.qrt", "--data", "x.npz"], "quantrt inspect m.qrt"),
        (ModelError("x"), ["build", "m.npz", "-o", "m.qrt"], "quantrt build -h"),
        (ModelError("x"), ["trtexec", "--saveEngine=m.qrt", "--onnx=m.onnx"], "quantrt inspect m.onnx"),
        (ModelError("x"), ["inspect", "m.onnx"], "quantrt inspect m.onnx --traceback"),
        (ModelError("x"), ["trtexec", "--onnx=a=b.onnx"], "quantrt inspect a=b.onnx"),
        (DataError("x"), ["calibrate"], "quantrt calibrate -h"),
        (DeviceError("x"), BUILD, "quantrt doctor"),
        (DeviceError("x"), ["doctor"], "quantrt doctor --traceback"),
        (
            InternalError("x"),
            ["bench", "m.qrt", "--traceback"],
            "quantrt bench m.qrt --traceback, and report what it prints",
        ),
    ],
)
def test_the_next_command(error: QuantRtError, argv: list[str], want: str):
    assert next_command(error, argv, VERBS) == want


@pytest.mark.parametrize(
    ("message", "near", "want"),
    [
        ("there is no recipe 'accurat'", "accurate", "quantrt build m.onnx --recipe accurate"),
        ("recipe 'accurat': there is no 'quantize.smothing'", "quantize.smoothing", "quantrt build -h"),
    ],
)
def test_only_a_name_like_the_nearest_one_is_replaced_in_the_command(message: str, near: str, want: str):
    argv = ["build", "m.onnx", "--recipe", "accurat"]
    assert with_command(UsageError(message, hint=f"'{near}'"), argv, VERBS).endswith(f": {want}")


@pytest.mark.parametrize("words", ["-o near1.npz", "--output=near1.npz"])
@pytest.mark.parametrize(
    ("other", "want"),
    [
        ("far-near.npz", "'far-near.npz': quantrt run m.qrt --data far-near.npz"),
        ("zzz.npz", "a path that exists: `ls .`"),
    ],
    ids=["another file comes near", "none does"],
)
def test_a_file_that_the_command_writes_is_not_what_was_meant(
    words: str, other: str, want: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("near1.npz", other):
        Path(name).touch()
    missing = Path("near.npz")
    error = UsageError(f"there is no data at '{missing}'", hint=nearest_file(missing, ".npz"))
    assert error.hint == "'near1.npz'"
    hint = with_command(error, ["run", "m.qrt", "--data", "near.npz", *words.split()], VERBS)
    assert hint.startswith(want)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("argv", [[], ["-q"], *([verb, "m.onnx"] for verb in VERBS)], ids=" ".join)
def test_a_failure_of_any_kind_and_verb_ends_in_one(kind: type[QuantRtError], argv: list[str]):
    failure = explain(kind("cannot", got="1"), argv, VERBS)
    last = failure.text.splitlines()[-1]
    assert last == f"  try {failure.data['error']['hint']}"
    words = shlex.split(last.removeprefix("  try ").partition(", and ")[0])
    assert words[0] == "quantrt"
    if words[-1] == "-h":
        with pytest.raises(SystemExit) as leaving:
            parse(COMMANDS, words[1:])
        assert leaving.value.code == 0
    elif words[-1] != "--traceback":
        parse(COMMANDS, words[1:])


def test_a_hint_of_its_own_stays():
    failure = explain(ModelError("cannot", hint="--more"), BUILD, VERBS)
    assert failure.text == "error: cannot\n  try --more" and failure.data["error"]["hint"] == "--more"
