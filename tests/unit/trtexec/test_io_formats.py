# SPDX-License-Identifier: Apache-2.0
"""Formats of inputs and outputs: those that the engine has anyway are accepted."""

import pytest

from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.trtexec.io_formats import check_formats
from quantrt.trtexec.settings import BuildSettings
from quantrt.trtexec.values import read_formats

INPUTS = (TensorSpec("x", "float32", (1,)), TensorSpec("ids", "int64", (1,)))
OUTPUTS = (TensorSpec("y", "float16", (1,)),)


def check(inputs: str, outputs: str = "fp16:chw") -> None:
    settings = BuildSettings(
        onnx=None,
        input_formats=read_formats("--inputIOFormats", inputs),
        output_formats=read_formats("--outputIOFormats", outputs),
    )
    check_formats(settings, INPUTS, OUTPUTS)


@pytest.mark.parametrize("text", ["fp32:chw,int64:chw", "chw", "chw,int64:hwc+chw"])
def test_what_the_model_has(text: str):
    check(text)


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ("fp16:chw,int64:chw", "chw", "input 'x' cannot be fp16"),
        ("fp32:chw", "chw", "input 'ids' cannot be fp32"),
        ("chw,hwc8", "chw", "input 'ids' cannot be hwc8"),
        ("chw,chw,chw", "chw", "3 for 2"),
        ("chw", "fp32:chw", "output 'y' cannot be fp32"),
    ],
)
def test_what_it_has_not(inputs: str, outputs: str, message: str):
    with pytest.raises(UsageError, match=message):
        check(inputs, outputs)


def test_nothing_asked_for():
    check_formats(BuildSettings(onnx=None), INPUTS, OUTPUTS)
