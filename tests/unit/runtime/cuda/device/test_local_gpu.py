# SPDX-License-Identifier: Apache-2.0
"""Facts of a GPU that is here: its own sizes, and the published peaks only of the very same board."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from quantrt.errors import DeviceError
from quantrt.gpu import gpu_named
from quantrt.runtime.cuda.device import local_gpu
from quantrt.runtime.cuda.device.local_gpu import describe_gpu, facts_of_properties, gpu_details


def properties(
    name: str, capability: tuple[int, int], count: int, gib: float, **more: int
) -> SimpleNamespace:
    """As torch.cuda.get_device_properties gives them."""
    return SimpleNamespace(
        name=name,
        major=capability[0],
        minor=capability[1],
        multi_processor_count=count,
        total_memory=int(gib * 2**30),
        L2_cache_size=60 * 2**20,
        shared_memory_per_block_optin=232448,
        **more,
    )


@pytest.mark.parametrize(
    ("found", "row"),
    [
        (properties("NVIDIA H200", (9, 0), 132, 139.8), "H200"),
        (properties("NVIDIA H100 80GB HBM3", (9, 0), 132, 79.1), "H100 SXM"),
        (properties("NVIDIA A100-SXM4-40GB", (8, 0), 108, 39.4), "A100 40GB"),
        (properties("NVIDIA A100-SXM4-80GB", (8, 0), 108, 79.2), "A100 80GB"),
        (properties("NVIDIA A800-SXM4-80GB", (8, 0), 108, 79.2), "A100 80GB"),
        (properties("NVIDIA GeForce RTX 3090", (8, 6), 82, 23.7), "RTX 3090"),
        (properties("Tesla V100-SXM2-32GB", (7, 0), 80, 31.7), "V100"),
        (properties("Tesla T4", (7, 5), 40, 14.6), "T4"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_board_of_the_table_has_its_published_peaks(found: SimpleNamespace, row: str):
    facts, published = facts_of_properties(found), gpu_named(row)
    assert facts.name == found.name
    assert facts.memory_bytes == found.total_memory
    assert facts.l2_bytes == found.L2_cache_size
    assert facts.bandwidth_gb_s == published.bandwidth_gb_s
    assert facts.int8_tops == published.int8_tops
    assert facts.source == published.source
    assert not facts.is_estimated


@pytest.mark.parametrize(
    ("found", "base"),
    [
        (properties("NVIDIA GeForce RTX 3080 Ti", (8, 6), 80, 11.8), "RTX 3090"),
        (properties("NVIDIA H100 PCIe", (9, 0), 114, 79.1), "H100 SXM"),
        (properties("NVIDIA H200 MIG 1g.18gb", (9, 0), 16, 16.0), "H100 SXM"),
        (properties("NVIDIA GeForce RTX 5080", (12, 0), 84, 15.9), "RTX 5090"),
        (properties("NVIDIA A10G", (8, 6), 80, 22.1), "RTX 3090"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_another_board_is_estimated_and_says_so(found: SimpleNamespace, base: str):
    facts, published = facts_of_properties(found), gpu_named(base)
    assert facts.is_estimated
    assert facts.source.startswith(f"estimated: {base} ")
    assert facts.capability == found.major * 10 + found.minor
    ratio = found.multi_processor_count / published.multiprocessors
    assert facts.fp16_tflops == pytest.approx(published.fp16_tflops * ratio)
    assert facts.bandwidth_gb_s == pytest.approx(published.bandwidth_gb_s * ratio)


def test_the_memory_clock_is_better_than_an_estimate():
    found = properties(
        "NVIDIA GeForce RTX 5080", (12, 0), 84, 15.9, memory_clock_rate=15_001_000, memory_bus_width=256
    )
    assert facts_of_properties(found).bandwidth_gb_s == pytest.approx(960, rel=1e-3)


def test_a_gpu_as_a_row_of_the_machines_facts(monkeypatch: pytest.MonkeyPatch):
    gpu = replace(gpu_named("L4"), name="NVIDIA L4", memory_bytes=23)
    monkeypatch.setattr(local_gpu, "describe_gpu", lambda: gpu)
    monkeypatch.setattr(local_gpu, "nvidia_driver", lambda: "570.1")
    assert local_gpu.gpu_row() == {
        "name": "NVIDIA L4",
        "memory_bytes": 23,
        "driver": "570.1",
        "compute_capability": "8.9",
    }


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_there_is_a_typed_error():
    with pytest.raises(DeviceError, match="there is no CUDA device 0"):
        describe_gpu()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
def test_the_gpu_that_is_here():
    facts = describe_gpu()
    assert facts.name == torch.cuda.get_device_name(0)
    assert facts.capability >= 70
    assert facts.bandwidth_gb_s > 0


def test_details_name_what_the_driver_hides(monkeypatch: pytest.MonkeyPatch):
    found = properties(
        "NVIDIA H200", (9, 0), 132, 139.8, memory_bus_width=6144, shared_memory_per_multiprocessor=233472
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found)
    details = gpu_details()
    assert details["compute_capability"] == "9.0"
    assert details["memory_bus_bits"] == 6144
    assert details["shared_memory_per_multiprocessor_bytes"] == 233472
    assert details["clock_khz"] is details["uuid"] is None
