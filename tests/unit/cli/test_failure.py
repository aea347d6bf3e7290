# SPDX-License-Identifier: Apache-2.0
"""Every exception has a text, a document and an exit code."""

import errno
import os
import signal

import pytest

from quantrt.cli.failure import explain
from quantrt.cli.signals import EndedBySignal
from quantrt.errors import AccuracyError, DataError, DeviceError, InternalError, ModelError, UsageError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AccuracyError("x"), 1),
        (UsageError("x"), 2),
        (ModelError("x"), 3),
        (DataError("x"), 3),
        (DeviceError("x"), 4),
        (InternalError("x"), 70),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.qrt"), 4),
        (MemoryError(), 4),
        (KeyError("x"), 70),
        (OSError("no number"), 70),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int):
    failure = explain(error)
    assert failure.exit_code == code
    assert failure.data["error"]["exit_code"] == code


def test_the_text_follows_the_template():
    error = UsageError("cannot do it to 'x'", got="1", expected="2", hint="--more")
    assert explain(error).text == "error: cannot do it to 'x'\n  got 1, expected 2\n  try --more"


def test_the_document_has_the_same_parts():
    document = explain(UsageError("cannot", got="1", expected="2", hint="--more")).data["error"]
    assert document == {
        "type": "UsageError",
        "message": "cannot",
        "got": "1",
        "expected": "2",
        "hint": "--more",
        "exit_code": 2,
    }


def test_a_full_disk_names_the_file():
    failure = explain(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.qrt"))
    assert failure.text == "error: cannot use 'a.qrt': No space left on device\n  try quantrt doctor"


@pytest.mark.parametrize(("number", "code"), [(None, 130), (signal.SIGTERM, 143)])
def test_an_interruption_that_a_library_took_for_its_own_failure_is_one(number: int | None, code: int):
    try:
        try:
            raise KeyboardInterrupt if number is None else EndedBySignal(number)
        except KeyboardInterrupt as interruption:
            raise ImportError("initialization failed") from interruption
    except ImportError as error:
        failure = explain(error)
    assert (failure.text, failure.exit_code) == ("interrupted", code)


def test_the_unexpected_is_called_a_bug():
    text = explain(ZeroDivisionError("division by zero")).text
    assert "this is a bug" in text
    assert "--traceback" in text


def test_the_traceback_is_kept():
    try:
        raise UsageError("deep down")
    except UsageError as error:
        assert "test_failure.py" in explain(error).traceback


def test_a_hint_without_a_command_gets_one():
    words = ["build", "model.onnx", "--metric=top2,x", "-o", "m.qrt"]
    error = UsageError("unknown metric 'top2'", hint="'top1'")
    assert explain(error, words, ["build"]).data["error"]["hint"] == (
        "'top1': quantrt build model.onnx --metric=top1,x -o m.qrt"
    )
    twice = explain(error, ["build", "top2", "--metric", "top2"], ["build"])
    assert twice.text.endswith("try 'top1'; next: quantrt build -h"), "which one is meant is not known"
    other = explain(ModelError("cannot read 'model.onnx'", hint="another file"), words, ["build"])
    assert other.text.endswith("try another file; next: quantrt inspect model.onnx")
    kept = explain(UsageError("cannot", hint="a larger one, --max-drop 1"), words, ["build"])
    assert kept.text.endswith("try a larger one, --max-drop 1")


def test_in_python_too_an_error_ends_in_what_to_try():
    kinds = [AccuracyError, DataError, DeviceError, InternalError, ModelError, UsageError]
    for kind in kinds:
        assert str(kind("cannot")) == f"cannot\n  try {kind.next_step}"
        assert "`quantrt" in kind.next_step
    assert str(UsageError("cannot", hint="--more")) == "cannot\n  try --more"
