# SPDX-License-Identifier: Apache-2.0
"""--inputIOFormats and --outputIOFormats as the builder is told of them."""

import pytest

from quantrt.config import BindingConfig
from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.trtexec.engine.io_formats import bindings_of, laid_out
from quantrt.trtexec.flags.settings import BuildSettings
from quantrt.trtexec.flags.values import read_formats

IMAGES = TensorSpec("images:0", "float32", ("N", 3, 8, 8))
MAPS = TensorSpec("maps", "float32", ("N", 32, 8, 8))
IDS = TensorSpec("ids", "int64", (1,))
INPUTS = (IMAGES, IDS)
OUTPUTS = (TensorSpec("y", "float16", (1,)),)


def asked(inputs: str, outputs: str = "", specs: tuple[TensorSpec, ...] = INPUTS) -> BindingConfig:
    settings = BuildSettings(
        onnx=None,
        input_formats=read_formats("--inputIOFormats", inputs) if inputs else (),
        output_formats=read_formats("--outputIOFormats", outputs) if outputs else (),
    )
    return bindings_of(settings, specs, OUTPUTS)


@pytest.mark.parametrize(
    ("text", "types", "layouts"),
    [
        ("fp16:chw,int32:chw", ("images:0:fp16", "ids:int32"), ()),
        ("chw", (), ()),
        ("int8:hwc,int64:chw", ("images:0:int8", "ids:int64"), ("images:0:nhwc",)),
        ("hwc8+hwc+chw,chw", (), ("images:0:nhwc",)),
        ("dla_linear+chw,chw", (), ()),
        ("", (), ()),
    ],
)
def test_a_model_with_an_image(text: str, types: tuple[str, ...], layouts: tuple[str, ...]):
    assert asked(text) == BindingConfig(input_types=types, input_layouts=layouts)


@pytest.mark.parametrize(
    ("name", "layout"), [("chw4", "nchw4"), ("chw32", "nchw32"), ("hwc8", "nhwc"), ("hwc16", "nhwc")]
)
def test_formats_that_need_no_padding(name: str, layout: str):
    assert asked(f"fp16:{name}", specs=(MAPS,)).input_layouts == (f"maps:{layout}",)


def test_one_format_is_for_all():
    found = asked("fp16:chw", "fp32:chw", specs=(IMAGES, MAPS))
    assert found.input_types == ("images:0:fp16", "maps:fp16")
    assert found.output_types == ("y:fp32",)


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ("chw,hwc8", "chw", "input 'ids' cannot be hwc8: hwc8 is for tensors with 4 axes"),
        ("hwc8,chw", "chw", "hwc8 pads 3 channels to a multiple of 8, and nothing is padded"),
        ("dla_hwc4,chw", "chw", "there is no DLA"),
        ("chw,chw,chw", "chw", "--inputIOFormats has to name one format, or one for each input"),
        ("", "fp32:hwc", "output 'y' cannot be hwc"),
    ],
)
def test_what_there_is_not(inputs: str, outputs: str, message: str):
    with pytest.raises(UsageError, match=message):
        asked(inputs, outputs)


def test_an_axis_that_the_model_does_not_tell():
    with pytest.raises(UsageError, match="the model does not tell its axes"):
        asked("hwc", specs=(TensorSpec("x", "float32", None),))


def test_dimensions_of_the_engine():
    assert [str(spec) for spec in laid_out(INPUTS, ("images:0:nhwc",))] == [
        "images:0 float32 [N,8,8,3] nhwc",
        "ids int64 [1]",
    ]
