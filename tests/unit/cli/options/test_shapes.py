# SPDX-License-Identifier: Apache-2.0
"""Free sizes are given by the user or refused, never made up."""

import pytest

from quantrt.cli.options.shapes import given_shapes, parse_shape, shapes_for, with_shapes
from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import TensorSpec

IDS = TensorSpec("input_ids", "int64", ("batch", "sequence"))
IMAGE = TensorSpec("image", "float32", ("batch", 3, 224, 224))
ANY = TensorSpec("any", "float32", None)


@pytest.mark.parametrize(
    ("text", "want"), [("a=1x384", ("a", (1, 384))), ("x:0=8", ("x:0", (8,))), ("a=b=2x3", ("a=b", (2, 3)))]
)
def test_texts(text: str, want: tuple[str, tuple[int, ...]]):
    assert parse_shape(text) == want


@pytest.mark.parametrize("text", ["a", "a=", "=1x2", "a=1x", "a=0x3", "a=-1x3", "a=1,3", "a=1x2.5"])
def test_texts_that_are_refused(text: str):
    with pytest.raises(UsageError, match="cannot read the shape"):
        parse_shape(text)


def test_free_sizes_are_set():
    (spec,) = with_shapes([IDS], {"input_ids": (2, 384)}, "m")
    assert spec == TensorSpec("input_ids", "int64", (2, 384))
    (spec,) = with_shapes([ANY], {"any": (5,)}, "m")
    assert spec.shape == (5,)


def test_a_free_batch_stays_free():
    assert with_shapes([IMAGE], {}, "m") == [IMAGE]


@pytest.mark.parametrize(
    ("spec", "shapes", "says"),
    [
        (IDS, {}, "its shape is free"),
        (ANY, {}, "its shape is free"),
        (IDS, {"input_id": (1, 2)}, "no input 'input_id'"),
        (IMAGE, {"image": (1, 3, 224, 225)}, "cannot have shape"),
        (IMAGE, {"image": (1, 3, 224)}, "cannot have shape"),
    ],
)
def test_what_is_refused(spec: TensorSpec, shapes: dict[str, tuple[int, ...]], says: str):
    with pytest.raises(UsageError, match=says):
        with_shapes([spec], shapes, "m")


def test_free_sizes_are_answered_with_what_to_type():
    mask = TensorSpec("mask", "int64", ("batch", "length"))
    with pytest.raises(UsageError) as caught:
        with_shapes([IDS, IMAGE, mask], {}, "m")
    assert caught.value.hint == "--shape input_ids=1x128 --shape mask=1x128, or --data with real inputs"


PAST = [TensorSpec(f"past{number}", "float32", ("batch", 4, "past", 16)) for number in range(2)]


def test_sizes_of_one_name_are_given_once():
    ids, *past = with_shapes([IDS, *PAST], {"input_ids": (3, 1), "past0": (3, 4, 32, 16)}, "m")
    assert ids.shape == (3, 1)
    assert [spec.shape for spec in past] == [(3, 4, 32, 16)] * 2
    with pytest.raises(UsageError) as caught:
        with_shapes([IDS, *PAST], {}, "m")
    assert caught.value.hint == "--shape input_ids=1x128 --shape past0=1x4x224x16, or --data with real inputs"


def test_sizes_of_one_name_are_the_same_everywhere():
    shapes = {"past0": (3, 4, 32, 16), "past1": (3, 4, 31, 16)}
    with pytest.raises(
        UsageError, match="'past0' and 'past1' of 'm' have the size 'past' in common"
    ) as caught:
        with_shapes(PAST, shapes, "m")
    assert caught.value.got == "32 and 31"


def test_shapes_of_other_inputs_are_none_of_theirs():
    shapes = {spec.name: (3, 4, 32, 16) for spec in PAST}
    assert shapes_for(PAST, shapes) == shapes
    assert shapes_for([IDS, *PAST], shapes) == {}
    assert shapes_for(PAST, {**shapes, "past1": (3, 5, 32, 16)}) == {}


def test_an_input_has_one_shape():
    assert given_shapes(None) == {}
    assert given_shapes([("a", (1, 2)), ("a", (1, 2)), ("b", (3,))]) == {"a": (1, 2), "b": (3,)}
    with pytest.raises(UsageError, match="--shape gives input 'a' two shapes") as caught:
        given_shapes([("a", (1, 2)), ("a", (1, 3))])
    assert caught.value.got == "1x2 and 1x3"
