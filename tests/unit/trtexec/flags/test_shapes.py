# SPDX-License-Identifier: Apache-2.0
"""Profiles of a command line, and the inputs that their names mean."""

import pytest

from quantrt.errors import UsageError
from quantrt.ir.profile import ShapeRange
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.trtexec.flags.parse import read_words
from quantrt.trtexec.flags.shapes import by_input, profile_text, read_profiles_given, shape_text

SPECS = (
    TensorSpec("input_ids", "int64", ("n", "s")),
    TensorSpec("input_mask", "int64", ("n", "s")),
    TensorSpec("scale[0]", "float32", ("n",)),
)


def test_opt_alone_stands_for_all_three():
    (profile,) = read_profiles_given(read_words(["--optShapes=input_*:8x128"]))
    assert profile.for_inputs(SPECS) == {
        "input_ids": ShapeRange((8, 128), (8, 128), (8, 128)),
        "input_mask": ShapeRange((8, 128), (8, 128), (8, 128)),
    }


def test_profiles_are_numbered_and_read_in_any_order():
    words = ["--profile=1", "--optShapes=input_ids:9x9", "--profile=0", "--optShapes=input_ids:1x1"]
    first, second = read_profiles_given(read_words(words))
    assert first.best == {"input_ids": (1, 1)}
    assert second.best == {"input_ids": (9, 9)}


def test_a_profile_as_the_builder_reads_it():
    words = ["--minShapes=scale[0]:1", "--optShapes=scale[0]:8", "--maxShapes=scale[0]:32"]
    (profile,) = read_profiles_given(read_words(words))
    assert profile_text(profile.for_inputs(SPECS)) == "scale[0]=1:8:32"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minShapes=x:1"], "needs --optShapes alone, or all of min, opt and max"),
        (["--minShapes=x:1", "--optShapes=x:2"], "needs --optShapes alone"),
        (["--minShapes=x:1", "--optShapes=x:2", "--maxShapes=y:3"], "name different inputs"),
        (["--optShapes=x:1", "--optShapes=x:2"], "twice in one profile"),
        (["--profile=0", "--optShapes=x:1", "--profile=0"], "--profile=0 is given twice"),
        (["--profile=1", "--optShapes=x:1"], "numbered from 0 on"),
        (["--profile=0"], "needs --optShapes alone"),
    ],
)
def test_profiles_that_make_no_sense(words: list[str], message: str):
    with pytest.raises(UsageError, match=message):
        read_profiles_given(read_words(words))


def test_a_name_goes_before_a_pattern():
    found = by_input({"*": (1, 1), "input_ids": (2, 2)}, SPECS[:2])
    assert found == {"input_ids": (2, 2), "input_mask": (1, 1)}


def test_a_name_that_means_no_input():
    with pytest.raises(UsageError, match="no input 'input_idz'") as caught:
        by_input({"input_idz": (1, 1)}, SPECS)
    assert caught.value.hint == "'input_ids'"
    with pytest.raises(UsageError):
        by_input({"mask*": (1, 1)}, SPECS)
    with pytest.raises(UsageError) as caught:
        by_input({"x": (1, 10)}, SPECS)
    assert caught.value.hint == "--shapes=input_ids:1x1"


def test_brackets_in_a_pattern_are_brackets():
    assert by_input({"scale[*]": (4,)}, SPECS) == {"scale[0]": (4,)}


def test_shapes_as_text():
    assert shape_text((1, 3, 224)) == "1x3x224"
    assert shape_text(()) == "scalar"


def test_two_patterns_that_disagree_are_no_guess():
    assert by_input({"input_*": (1, 1), "*_ids": (1, 1)}, SPECS[:1]) == {"input_ids": (1, 1)}
    with pytest.raises(UsageError, match="two patterns give input 'input_ids' different shapes"):
        by_input({"input_*": (1, 1), "*_ids": (2, 2)}, SPECS[:2])
    found = by_input({"input_*": (1, 1), "*_ids": (2, 2), "input_ids": (3, 3)}, SPECS[:2])
    assert found == {"input_ids": (3, 3), "input_mask": (1, 1)}
