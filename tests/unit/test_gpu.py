# SPDX-License-Identifier: Apache-2.0
"""The table of GPUs is consistent with itself, and names are found however they are spelled."""

import re

import pytest

from quantrt.errors import UsageError
from quantrt.gpu import GPUS, TARGETS, GpuFacts, gpu_named, gpu_of_target, gpu_sold_as, shared_memory_of

SHARED_KIB = {70: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 120: 99}
"""Most shared memory one block can have, by compute capability."""


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_a_row_is_consistent(gpu: GpuFacts):
    assert gpu.shared_memory_bytes == SHARED_KIB[gpu.capability] * 1024
    assert (gpu.int8_tops > 0) is gpu.has_int8_tensor_cores
    assert (gpu.fp8_tflops > 0) is (gpu.capability >= 89)
    assert gpu.fp32_tflops < gpu.fp16_tflops
    assert 2**30 <= gpu.memory_bytes <= 2**38
    assert 50 < gpu.bandwidth_gb_s < 10_000
    assert gpu.source
    assert not gpu.is_estimated


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_peaks_are_dense_and_accumulate_in_float32(gpu: GpuFacts):
    if gpu.int8_tops:
        # Twice the rate of fp16, four times on GeForce boards, which halve float32 accumulation.
        halved = gpu.name.startswith("RTX")
        assert gpu.int8_tops / gpu.fp16_tflops == pytest.approx(4 if halved else 2, rel=0.02)
    if gpu.fp8_tflops:
        assert gpu.fp8_tflops / gpu.fp16_tflops == pytest.approx(2, rel=0.02)


def test_names_and_aliases_are_distinct():
    names = [re.sub(r"[ -]", "", name.lower()) for gpu in GPUS for name in (gpu.name, *gpu.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("t4", "T4"),
        ("NVIDIA T4", "T4"),
        ("a800", "A100 80GB"),
        ("A100-40GB", "A100 40GB"),
        ("a100", "A100 80GB"),
        ("rtx_4090", "RTX 4090"),
        ("GeForce RTX 3090", "RTX 3090"),
        ("h100", "H100 SXM"),
        ("orin", "Orin"),
    ],
)
def test_a_name_is_found_however_it_is_spelled(name: str, want: str):
    assert gpu_named(name).name == want


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UsageError) as caught:
        gpu_named("h20")
    assert caught.value.hint == "'H200'"
    assert "T4, V100" in str(caught.value)


@pytest.mark.parametrize("name", ["", "??", "radeon pro w7900"])
def test_a_name_like_none_lists_them_all(name: str):
    with pytest.raises(UsageError, match=re.escape("B200, RTX 5090, Orin")):
        gpu_named(name)


def test_int8_by_generation():
    assert [gpu_named(name).has_int8_tensor_cores for name in ("v100", "t4", "a10")] == [False, True, True]


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_a_gpu_that_stands_for_it(target: str):
    gpu = gpu_of_target(target)
    assert f"sm_{gpu.capability}" == target
    assert shared_memory_of(gpu.capability) == SHARED_KIB[gpu.capability] * 1024


def test_an_unknown_target_suggests_the_nearest():
    with pytest.raises(UsageError, match="unknown target 'sm90'") as error:
        gpu_of_target("sm90")
    assert error.value.hint == "'sm_90'"
    assert shared_memory_of(75) == 64 * 1024
    assert shared_memory_of(61) is None


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Tesla T4", "T4"),
        ("H200", "H200"),
        ("NVIDIA GH200 480GB", None),
        ("", None),
    ],
)
def test_a_drivers_name_means_a_row(name: str, want: str | None):
    found = gpu_sold_as(name)
    assert (found and found.name) == want
