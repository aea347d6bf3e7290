# SPDX-License-Identifier: Apache-2.0
"""Words of a command line: spellings, mistakes, and flags that stand in groups."""

import pytest

from quantrt.errors import UsageError
from quantrt.trtexec.flags.flag import Effect
from quantrt.trtexec.flags.parse import read_words


def test_values_stand_behind_an_equals_sign_or_in_the_next_word():
    given = read_words(["--onnx=a=b.onnx", "--iterations", "20", "--int8"])
    assert given.text("--onnx") == "a=b.onnx"
    assert given.text("--iterations") == "20"
    assert given.has("--int8")
    assert given.text("--duration") is None


def test_switches_may_be_spelled_out():
    given = read_words(["--int8=true", "--fp16=false", "--best=0", "--bf16=1"])
    assert [given.has(name) for name in ("--int8", "--fp16", "--best", "--bf16")] == [
        True,
        False,
        False,
        True,
    ]


def test_other_names_count_as_the_first_one():
    given = read_words(["--streams=2", "--buildOnly", "--nvtxMode=none"])
    assert given.text("--infStreams") == "2"
    assert given.has("--skipInference")
    assert given.text("--profilingVerbosity") == "none"


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("--onxx=m.onnx", "no trtexec has a flag '--onxx'", "--onnx"),
        ("--minShape=x:1", "no trtexec has a flag '--minShape'", "--minShapes"),
        ("model.onnx", "takes flags alone", "--onnx=model.onnx"),
        ("--onnx", "--onnx needs a value", "--onnx=FILE"),
        ("--int8=maybe", "--int8 is a switch", None),
        ("--precisionConstraints=obeys", "unknown value 'obeys'", "--precisionConstraints=obey"),
        (
            "--refit",
            "--refit cannot be done: engines cannot be refitted",
            "--onnx=MODEL.onnx, without --refit",
        ),
        (
            "--plugins=a.so",
            "--plugins cannot be done: there are no plugins",
            "--onnx=MODEL.onnx, without --plugins",
        ),
    ],
)
def test_mistakes_are_answered_with_what_to_do(word: str, message: str, hint: str | None):
    with pytest.raises(UsageError, match=message) as caught:
        read_words([word])
    assert caught.value.hint == hint


def test_all_that_is_refused_is_named_at_once():
    with pytest.raises(UsageError) as caught:
        read_words(["--safe", "--onnx=m.onnx", "--useDLACore=0"])
    assert caught.value.hint == "without --safe, --useDLACore"


def test_a_flag_may_recur_only_with_the_same_value():
    assert read_words(["--iterations=5", "--iterations=5"]).text("--iterations") == "5"
    with pytest.raises(UsageError, match="--iterations is given twice"):
        read_words(["--iterations=5", "--iterations=6"])


def test_a_switch_is_on_or_off():
    assert read_words(["--fp16", "--fp16=true"]).has("--fp16")
    with pytest.raises(UsageError, match="--fp16 is switched both on and off"):
        read_words(["--fp16", "--fp16=false"])
    with pytest.raises(UsageError, match="--verbose is switched both on and off"):
        read_words(["-v", "--verbose=0"])


def test_equal_shapes_may_recur_in_several_profiles():
    words = ["--profile=0", "--optShapes=x:1x4", "--profile=1", "--optShapes=x:1x4"]
    assert [flag.name for flag, _ in read_words(words).items] == [
        "--profile",
        "--optShapes",
        "--profile",
        "--optShapes",
    ]


def test_flags_by_what_they_do():
    given = read_words(["--noTF32", "--int8", "--avgTiming=4", "--noTF32"])
    assert [flag.name for flag in given.of_effect(Effect.NOTHING)] == ["--noTF32", "--avgTiming"]
