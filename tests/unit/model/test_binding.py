# SPDX-License-Identifier: Apache-2.0
"""Element types and layouts of inputs and outputs, from text."""

import pytest

from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.binding import Binding, read_layouts, read_types

IMAGES = TensorSpec("images", "float32", ("N", 3, 8, 8))
IDS = TensorSpec("ids:0", "int64", ("N", 5))
MASK = TensorSpec("mask", "bool", ("N", 5))
HALF = TensorSpec("half", "float16", ("N", 5))
INPUTS = (IMAGES, IDS, MASK, HALF)


def types(*texts: str, is_input: bool = True) -> dict[str, Binding]:
    return read_types(texts, INPUTS, is_input=is_input, flag="--input-types")


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (("images:fp16",), {"images": Binding("float16")}),
        (("images:float16", "ids:0:int32"), {"images": Binding("float16"), "ids:0": Binding("int32")}),
        (("images:int8@0.5",), {"images": Binding("int8", 0.5)}),
        (("images:int8",), {"images": Binding("int8")}),
        (("images:uint8", "images:bf16"), {"images": Binding("bfloat16")}),
        (("i*s:uint8", "images:fp32"), {}),
        (("mask:uint8",), {"mask": Binding("uint8")}),
        (("images:fp32", "half:fp16"), {}),
        ((), {}),
    ],
)
def test_what_is_asked_for(texts, wanted):
    assert types(*texts) == wanted


def test_a_type_alone_is_for_all():
    found = read_types(("fp32",), (IMAGES, HALF), is_input=True, flag="--input-types")
    assert found == {"half": Binding("float32")}


@pytest.mark.parametrize(
    ("texts", "message", "hint"),
    [
        (("image:fp16",), "the model has no 'image'", "--input-types images:fp16"),
        (("images:fp61",), "unknown element type 'fp61'", "'fp16'"),
        (("fp61",), "cannot read 'fp61'", "'fp16'"),
        (("images",), "cannot read 'images'", "--input-types images:fp32"),
        (("images:fp16@0.5",), "cannot read 'fp16@0.5'", None),
        (("images:int8@0",), "cannot read 'int8@0'", None),
        (("images:int8@nan",), "cannot read 'int8@nan'", None),
        (("images:int8@1e-50",), "cannot read 'int8@1e-50'", None),
        (("images:int8@1e50",), "cannot read 'int8@1e50'", None),
        (("images:int64",), "input 'images' cannot be int64: floats are given as floats or bytes", None),
        (("half:int8",), "codes are of float32 alone", None),
        (("ids:0:fp16",), "input 'ids:0' cannot be fp16", None),
        (("ids:0:int8@0.5",), "only codes of floats have a scale", None),
    ],
)
def test_what_cannot_be(texts, message: str, hint: str | None):
    with pytest.raises(UsageError, match=message) as caught:
        types(*texts)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("images:uint8", "output 'images' cannot be uint8: floats would be cut"),
        ("ids:0:uint8", "its values may be larger"),
    ],
)
def test_outputs_keep_their_values(text: str, message: str):
    with pytest.raises(UsageError, match=message):
        types(text, is_input=False)
    assert types("ids:0:int32", "images:fp16", is_input=False).keys() == {"ids:0", "images"}


def test_layouts():
    found = read_layouts(("images:nhwc", "ids*:nchw"), INPUTS, flag="--input-layouts")
    assert {name: layout.name for name, layout in found.items()} == {"images": "nhwc"}
    with pytest.raises(UsageError, match="'ids:0': a tensor with 2 axes cannot be nhwc"):
        read_layouts(("nhwc",), INPUTS, flag="--input-layouts")
    with pytest.raises(UsageError, match="'images': 3 channels cannot be nchw4"):
        read_layouts(("images:nchw4",), INPUTS, flag="--input-layouts")


def test_vectors_leave_one_size_free_at_most():
    spec = TensorSpec("x", "float32", ("N", 8, "h", "w"))
    with pytest.raises(UsageError, match="more than one of its sizes is free") as caught:
        read_layouts(("x:nchw4",), (spec,), flag="--input-layouts")
    assert "nhwc" in str(caught.value.hint)
    with pytest.raises(UsageError, match="does not tell its axes"):
        read_layouts(("x:nhwc",), (TensorSpec("x", "float32", None),), flag="--input-layouts")
