# SPDX-License-Identifier: Apache-2.0
"""What flags come to for the builder, on a GPU and on a CPU."""

from typing import Any

import pytest

from quantrt.errors import UsageError
from quantrt.gpu import TARGETS
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.trtexec.engine.build_config import Mapped, map_build
from quantrt.trtexec.engine.device import Device
from quantrt.trtexec.flags.parse import read_words
from quantrt.trtexec.flags.settings import read_settings

SPECS = (TensorSpec("image", "float32", ("n", 3, 16, 16)), TensorSpec("scale", "float32", ()))
WITH_BF16 = {"isa": ["avx512f", "avx512_bf16"]}
WITHOUT = {"isa": ["avx2"]}


def mapped(*words: str, device: str = "cpu", facts: Any = WITHOUT, own: bool = False) -> Mapped:
    settings = read_settings(read_words(["--onnx=m.onnx", *words])).build
    return map_build(settings, Device(device), facts, SPECS, has_own_scales=own)


@pytest.mark.parametrize(
    ("words", "device", "facts", "want"),
    [
        ([], "cpu", WITH_BF16, {"fp32"}),
        (["--int8", "--calib-random"], "cpu", WITHOUT, {"fp32", "int8"}),
        (["--int8", "--calib-random"], "cpu", WITH_BF16, {"fp32", "int8", "bf16"}),
        (["--int8", "--calib-random"], "cuda", WITHOUT, {"fp32", "int8", "fp16"}),
        (["--fp16"], "cuda", WITHOUT, {"fp32", "fp16"}),
        (["--fp16"], "cpu", WITH_BF16, {"fp32"}),
        (["--bf16"], "cpu", WITH_BF16, {"fp32", "bf16"}),
        (["--bf16"], "cpu", WITHOUT, {"fp32"}),
        (["--bf16"], "cuda", WITHOUT, {"fp32", "bf16"}),
        (["--int8", "--bf16", "--calib-random"], "cuda", WITHOUT, {"fp32", "int8", "bf16"}),
        (["--fp8", "--calib-random"], "cuda", WITHOUT, {"fp32", "fp8", "fp16"}),
        (["--fp8", "--int8", "--bf16", "--calib-random"], "cuda", WITHOUT, {"fp32", "fp8", "int8", "bf16"}),
        (["--fp8", "--int8", "--calib-random"], "cpu", WITHOUT, {"fp32", "int8"}),
        (["--best", "--calib-random"], "cuda", WITHOUT, {"fp32", "int8", "fp8", "fp16", "bf16"}),
        (["--best", "--calib-random"], "cpu", WITH_BF16, {"fp32", "int8", "bf16"}),
        (["--stronglyTyped"], "cuda", WITHOUT, {"fp32"}),
        (["--stronglyTyped", "--fp16"], "cuda", WITHOUT, {"fp32"}),
    ],
)
def test_precisions(words: list[str], device: str, facts: Any, want: set[str]):
    found = mapped(*words, device=device, facts=facts)
    assert found.config.precisions == want


@pytest.mark.parametrize(
    ("words", "device", "note"),
    [
        (["--fp16"], "cpu", "--fp16: this CPU has no kernels for it, so it is not used"),
        (["--fp8"], "cpu", "--fp8: no CPU has kernels for it, so it is not used"),
        (["--bf16"], "cpu", "--bf16: this CPU has no instructions for it, so it is not used"),
        (["--stronglyTyped", "--fp16"], "cuda", "--fp16: nothing is allowed by it"),
        (
            ["--timingCacheFile=t", "--tacticSources=-CUDNN"],
            "cpu",
            "--timingCacheFile, --tacticSources: nothing",
        ),
        (["--tacticSources=+JIT_CONVOLUTIONS"], "cuda", "there is no source JIT_CONVOLUTIONS here"),
        (
            ["--minShapes=image:1x3x16x16", "--optShapes=image:4x3x16x16", "--maxShapes=image:8x3x16x16"],
            "cpu",
            "on a CPU an engine takes any shape",
        ),
    ],
)
def test_what_is_not_done_is_said(words: list[str], device: str, note: str):
    (found,) = mapped(*words, device=device).notes
    assert note in found


def test_int8_without_ranges_says_what_to_give():
    for flag in ("--int8", "--best"):
        with pytest.raises(UsageError, match=f"{flag} needs the ranges of activations") as caught:
            mapped(flag)
        assert caught.value.expected == "--calib=CACHE, --calib-data=DATA or --calib-random"
    with pytest.raises(UsageError, match="--fp8 needs the ranges of activations"):
        mapped("--fp8", device="cuda")
    assert "int8" in mapped("--int8", own=True).config.precisions


def test_ranges_without_int8():
    with pytest.raises(UsageError, match="--calib-random is used by int8 and fp8 only"):
        mapped("--calib-random")


def test_options_of_kernels_on_a_gpu():
    found = mapped(
        "--memPoolSize=workspace:512M",
        "--timingCacheFile=t.json",
        "--tacticSources=-CUDNN,-CUBLAS,-cublas_lt,+TRITON",
        "--builderOptimizationLevel=5",
        "--hardwareCompatibilityLevel=ampere+",
        device="cuda",
    ).config.cuda
    assert found.workspace_mb == 512
    assert found.timing_cache == "t.json"
    assert found.exclude_tactic_sources == ("cudnn", "cublaslt")
    assert found.builder_optimization_level == 5
    assert found.targets == TARGETS


def test_no_builder_cache_means_no_file():
    assert mapped("--timingCacheFile=t", "--noBuilderCache", device="cuda").config.cuda.timing_cache is None


def test_an_unknown_tactic_source_is_an_error_on_every_device():
    for device in ("cpu", "cuda"):
        with pytest.raises(UsageError, match="unknown tactic source 'CUDN'") as caught:
            mapped("--tacticSources=-CUDN", device=device)
        assert caught.value.hint == "--tacticSources=-CUDNN"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_shapes_become_profiles_and_scalars_have_none(device: str):
    words = ["--minShapes=image:1x3x16x16,scale:", "--optShapes=image:4x3x16x16,scale:scalar"]
    found = mapped(*words, "--maxShapes=image:8x3x16x16,scale:", device=device)
    assert found.config.cuda.profiles == ("image=1x3x16x16:4x3x16x16:8x3x16x16",)


def test_shapes_that_the_model_cannot_have():
    with pytest.raises(UsageError, match="cannot have these shapes") as caught:
        mapped("--optShapes=image:4x4x16x16")
    assert "--optShapes" in str(caught.value.hint)


def test_the_level_says_how_long_a_cpu_times_candidates():
    times = [mapped(f"--builderOptimizationLevel={level}").config.bench.duration_s for level in range(6)]
    assert times == sorted(times)
    assert times[3] == mapped().config.bench.duration_s
    assert mapped("--builderOptimizationLevel=0", device="cuda").config.bench == mapped().config.bench
