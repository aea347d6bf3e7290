# SPDX-License-Identifier: Apache-2.0
"""`quantrt build --target` where there is no GPU: an engine file, marked as not timed."""

import importlib.util
from pathlib import Path

import pytest

from quantrt.errors import DeviceError
from quantrt.runtime.executor import check_library

WORDS = ("build", "model.onnx", "-o", "model.qrt", "--device", "cuda")
LEVEL = ("--builder-optimization-level", "0")


def has_gpu() -> bool:
    """Whether builds here time on a GPU."""
    try:
        check_library("cuda")
    except DeviceError:
        return False
    return True


pytestmark = [
    pytest.mark.skipif(has_gpu(), reason="there is a GPU here"),
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed"),
]


def test_an_engine_for_two_targets_and_a_range_of_batches(folder: Path, quantrt_json, quantrt_text):
    shapes = "image=1x3x16x16:8x3x16x16:32x3x16x16"
    data = quantrt_json(
        *WORDS, *LEVEL, "--fp16", "--target", "sm_90,sm_80", "--shapes", shapes, "--valid-data", "valid.npz"
    )
    assert data["precision"] == "fp16"
    assert data["report"]["config"]["cuda"]["targets"] == ["sm_90", "sm_80"]
    assert any("not timed on the device" in note for note in data["report"]["notes"])
    text = quantrt_text("inspect", "model.qrt")
    assert "not timed on the device: kernels were chosen for H100 SXM (sm_90)" in " ".join(text.split())
    assert "sm_80, sm_90" in text


def test_without_a_target_there_is_nothing_to_build_for(folder: Path, quantrt_json):
    error = quantrt_json(*WORDS, "--fp16", code=4)["error"]
    assert "no usable GPU" in error["message"]
    assert not Path("model.qrt").exists()


def test_an_unknown_target_and_a_shape_of_no_input_are_usage_errors(folder: Path, quantrt_json):
    error = quantrt_json(*WORDS, "--fp16", "--target", "sm_91", code=2)["error"]
    assert "unknown target 'sm_91'" in error["message"]
    error = quantrt_json(*WORDS, "--fp16", "--target", "sm_90", "--shapes", "images=1x3x16x16", code=2)[
        "error"
    ]
    assert "no input 'images'" in error["message"]
