# SPDX-License-Identifier: Apache-2.0
"""Shapes and values of inputs."""

from pathlib import Path

import numpy as np
import pytest

from quantrt.errors import DataError, UsageError
from quantrt.ir.profile import Profile, ShapeRange
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.trtexec.inference.inputs import check_profiles, input_shapes, make_inputs, read_raw
from quantrt.trtexec.reports.log import Log

IMAGE = TensorSpec("image", "float32", ("n", 3, "h", "w"))
IDS = TensorSpec("ids", "int64", ("n", "s"))
FIXED = TensorSpec("fixed", "float32", (1, 4))


def test_what_is_given_goes_before_the_profile():
    found = input_shapes((IDS, FIXED), {"ids": (2, 16)}, {"ids": (8, 128), "fixed": (1, 4)}, Log())
    assert found == {"ids": (2, 16), "fixed": (1, 4)}


def test_free_sizes_that_nobody_gave_are_made_up_and_said(capsys: pytest.CaptureFixture[str]):
    assert input_shapes((IMAGE, IDS, FIXED), {}, {}, Log()) == {
        "image": (1, 3, 224, 224),
        "ids": (1, 128),
        "fixed": (1, 4),
    }
    text = capsys.readouterr().err
    assert "Dynamic dimensions required for input: image, but no shapes were provided." in text
    assert "Automatically overriding shape to: 1x128" in text
    assert "fixed" not in text


def test_free_sizes_are_those_that_the_build_timed():
    assert input_shapes((IDS,), {}, {}, Log(), {"ids": (32, 48)}) == {"ids": (1, 48)}
    assert input_shapes((IDS,), {"ids": (2, 16)}, {}, Log(), {"ids": (32, 48)}) == {"ids": (2, 16)}


@pytest.mark.parametrize("shape", [(1, 5), (1,), (0, 4)])
def test_a_shape_that_the_input_cannot_have(shape: tuple[int, ...]):
    with pytest.raises(UsageError, match="input 'fixed' cannot have shape"):
        input_shapes((FIXED,), {"fixed": shape}, {}, Log())


def test_an_input_of_unknown_rank_needs_a_shape():
    spec = TensorSpec("x", "float32", None)
    with pytest.raises(UsageError, match="is not known") as caught:
        input_shapes((spec,), {}, {}, Log())
    assert caught.value.hint == "--shapes=x:..."
    assert input_shapes((spec,), {"x": (2, 2)}, {}, Log()) == {"x": (2, 2)}


def test_shapes_outside_the_profiles():
    profile = Profile({"ids": ShapeRange((1, 1), (4, 64), (8, 128))})
    check_profiles((profile,), {"ids": (8, 128)})
    check_profiles((), {"ids": (99, 1)})
    with pytest.raises(UsageError, match="outside the profiles") as caught:
        check_profiles((profile,), {"ids": (9, 128)})
    assert caught.value.got == "ids:9x128"


def test_files_and_random_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    want = np.arange(4, dtype=np.float32).reshape(1, 4)
    want.tofile(tmp_path / "f.bin")
    shapes = {"fixed": (1, 4), "ids": (2, 3)}
    found = make_inputs((FIXED, IDS), shapes, {"fixed": tmp_path / "f.bin"}, Log())
    assert np.array_equal(found["fixed"], want)
    assert found["ids"].shape == (2, 3)
    assert found["ids"].dtype == np.int64
    again = make_inputs((FIXED, IDS), shapes, {"fixed": tmp_path / "f.bin"}, Log())
    assert np.array_equal(found["ids"], again["ids"])
    text = capsys.readouterr().out
    assert f"Using values loaded from {tmp_path / 'f.bin'} for input fixed" in text
    assert "Using random values for input ids" in text


def test_a_file_for_no_input(tmp_path: Path):
    with pytest.raises(UsageError, match="no input 'fixd'") as caught:
        make_inputs((FIXED,), {"fixed": (1, 4)}, {"fixd": tmp_path}, Log())
    assert caught.value.hint == "'fixed'"


def test_files_that_cannot_be_read(tmp_path: Path):
    (tmp_path / "short.bin").write_bytes(b"123")
    with pytest.raises(DataError, match="is not the size of input 'fixed'") as caught:
        read_raw(tmp_path / "short.bin", "float32", (1, 4), "input 'fixed'")
    assert caught.value.got == "3 bytes"
    assert caught.value.expected == "16: float32 of shape 1x4"
    with pytest.raises(DataError, match="cannot read input 'fixed'"):
        read_raw(tmp_path / "none.bin", "float32", (1, 4), "input 'fixed'")
    with pytest.raises(DataError, match="text has no raw form"):
        read_raw(tmp_path / "short.bin", "string", (1,), "input 't'")
