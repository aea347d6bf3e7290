# SPDX-License-Identifier: Apache-2.0
"""Profiles: as text, against a model's inputs, as JSON, and what they admit at run time."""

import json

import numpy as np
import pytest

from quantrt.errors import DataError, ModelError, UsageError
from quantrt.ir.profile import at_shapes, profile_rows, profiles_from_rows, read_profiles
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.runtime.profile_check import ProfileCheck

IMAGES = (TensorSpec("images", "float32", ("N", 3, 8, 8)),)
TEXT = (TensorSpec("ids", "int64", ("N", "S")), TensorSpec("mask", "int64", ("N", "S")))


def test_an_input_has_its_three_shapes():
    (profile,) = read_profiles(["images=1x3x8x8:8x3x8x8:32x3x8x8"], IMAGES)
    assert profile.best == {"images": (8, 3, 8, 8)}
    assert profile.corners == ({"images": (1, 3, 8, 8)}, {"images": (32, 3, 8, 8)})
    assert str(profile) == "images=1x3x8x8:8x3x8x8:32x3x8x8"


def test_one_shape_stands_for_all_and_symbols_carry_over():
    (profile,) = read_profiles(["ids=4x16"], TEXT)
    assert profile.best == {"ids": (4, 16), "mask": (4, 16)}
    assert not profile.admits({"ids": (4, 15), "mask": (4, 15)})
    named, _ = read_profiles(["ids=1x1:2x8:4x16,mask=1x1:2x8:4x16", "ids=1x32:1x64:1x128"], TEXT)
    assert named == read_profiles(["mask=1x1:2x8:4x16"], TEXT)[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("images", "cannot read the shapes 'images'"),
        ("images=1x3x8x8:2x3x8x8", "cannot read"),
        ("images=1x3x8xA:1x3x8x8:1x3x8x8", "cannot read"),
        ("images=0x3x8x8", "cannot read"),
        ("=1x3x8x8", "cannot read"),
        ("image=1x3x8x8", "no input 'image'"),
        ("images=1x3x8", "cannot have these shapes"),
        ("images=1x3x9x8", "cannot have these shapes"),
        ("images=4x3x8x8:2x3x8x8:8x3x8x8", "cannot have these shapes"),
    ],
)
def test_a_mistake_is_named(text: str, reason: str):
    with pytest.raises(UsageError, match=reason):
        read_profiles([text], IMAGES)


def test_a_symbol_has_one_range_and_no_size_is_left_open():
    with pytest.raises(UsageError, match="'mask' cannot have"):
        read_profiles(["ids=1x1:2x8:4x16,mask=1x1:2x8:4x17"], TEXT)
    free = (*TEXT, TensorSpec("other", "float32", ("N", None)))
    with pytest.raises(UsageError, match="leave a size of input 'other' open"):
        read_profiles(["ids=1x1:2x8:4x16"], free)


def test_rows_are_json_and_back():
    profiles = read_profiles(["ids=1x1:2x8:4x16", "ids=1x128"], TEXT)
    assert profiles_from_rows(json.loads(json.dumps(profile_rows(profiles)))) == profiles


def test_arrays_are_cut_and_repeated():
    x = np.arange(6).reshape(2, 3)
    found = at_shapes({"x": x, "y": x}, {"x": (3, 2)})
    np.testing.assert_array_equal(found["x"], [[0, 1], [3, 4], [0, 1]])
    assert found["y"] is not None and found["y"].shape == (2, 3)


def test_a_scalar_stays_one():
    found = at_shapes({"rate": np.array(16000), "x": np.zeros((2, 2))}, {"rate": (), "x": (1, 2)})
    assert found["rate"].shape == ()
    assert found["x"].shape == (1, 2)


def test_what_no_profile_admits_is_refused_by_name_and_shape():
    rows = profile_rows(read_profiles(["ids=1x1:2x8:4x16", "ids=1x64:1x64:1x128"], TEXT))
    check = ProfileCheck({"profiles": rows})
    arrays = {name: {"ids": np.zeros(shape), "mask": np.zeros(shape)} for name, shape in
              {"in": (4, 16), "second": (1, 100), "long": (1, 129), "between": (1, 32)}.items()}  # fmt: skip
    for name in ("in", "second", "in"):
        check.check(arrays[name])
    with pytest.raises(DataError, match="input 'ids'") as error:
        check.check(arrays["long"])
    assert error.value.got == "ids [1, 129]"
    assert error.value.expected == "ids 1x1:2x8:4x16 or ids 1x64:1x64:1x128 (min:opt:max)"
    with pytest.raises(DataError, match="input 'ids'"):
        check.check(arrays["between"])
    with pytest.raises(DataError, match="the inputs together"):
        check.check({"ids": np.zeros((4, 16)), "mask": np.zeros((1, 100))})


def test_without_profiles_any_shape_runs_and_damage_is_told():
    ProfileCheck({}).check({})
    with pytest.raises(ModelError, match="profiles cannot be read"):
        ProfileCheck({"profiles": [{"x": [[1], [2], "3"]}]})
    with pytest.raises(ModelError, match="profiles cannot be read"):
        ProfileCheck({"profiles": [{"x": [[1], [2]]}]})
