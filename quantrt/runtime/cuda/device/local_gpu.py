# SPDX-License-Identifier: Apache-2.0
"""Facts of a GPU in this machine: sizes as the driver reports them, peaks from the table of GPUs."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import torch

from quantrt.device import nvidia_driver
from quantrt.errors import DeviceError
from quantrt.gpu import GPUS, GpuFacts

__all__ = ["describe_gpu", "facts_of_properties", "gpu_details", "gpu_row"]


def describe_gpu() -> GpuFacts:
    """The first GPU that CUDA sees.

    Raises:
        DeviceError: there is none.
    """
    if not torch.cuda.is_available() or not torch.cuda.device_count():
        raise DeviceError(
            "there is no CUDA device 0",
            got="0 usable devices",
            hint="--device cpu, or `quantrt doctor` to see what this machine has",
        )
    return facts_of_properties(torch.cuda.get_device_properties(0))


def gpu_row() -> dict[str, Any]:
    """The first GPU, JSON-ready, as a row of "gpu" in `quantrt.device.describe_device`.

    Raises:
        DeviceError: there is none.
    """
    gpu = describe_gpu()
    return {
        "name": gpu.name,
        "memory_bytes": gpu.memory_bytes,
        "driver": nvidia_driver(),
        "compute_capability": f"{gpu.capability // 10}.{gpu.capability % 10}",
    }


def gpu_details() -> dict[str, Any]:
    """What the driver tells of the first GPU, JSON-ready; None where it hides something."""
    describe_gpu()  # raises where there is none
    properties: Any = torch.cuda.get_device_properties(0)
    names = ("shared_memory_per_multiprocessor", "memory_bus_width", "clock_rate", "memory_clock_rate")
    shared_bytes, bus_bits, clock_khz, memory_clock_khz = (getattr(properties, name, None) for name in names)
    return {
        "name": properties.name,
        "uuid": f"GPU-{properties.uuid}" if hasattr(properties, "uuid") else None,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "shared_memory_per_multiprocessor_bytes": shared_bytes,
        "memory_bus_bits": bus_bits,
        "clock_khz": clock_khz,
        "memory_clock_khz": memory_clock_khz,
    }


def facts_of_properties(properties: Any) -> GpuFacts:
    """Facts from what torch.cuda.get_device_properties gives.

    Bandwidth and peaks come from the table's row of the same board. A board that is not in the table, or a
    part of one (MIG), gets them scaled by multiprocessors from the nearest row, and the bandwidth from its
    memory clock where the driver tells it, marked as estimated.
    """
    row = _same_board(properties)
    base = row or _nearest(properties)
    scale = 1.0 if row else properties.multi_processor_count / base.multiprocessors
    bandwidth_gb_s = (0.0 if row else _clocked_gb_s(properties)) or base.bandwidth_gb_s * scale
    return dataclasses.replace(
        base,
        name=properties.name,
        capability=_capability(properties),
        multiprocessors=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        bandwidth_gb_s=bandwidth_gb_s,
        shared_memory_bytes=properties.shared_memory_per_block_optin,
        l2_bytes=properties.L2_cache_size,
        fp32_tflops=base.fp32_tflops * scale,
        fp16_tflops=base.fp16_tflops * scale,
        int8_tops=base.int8_tops * scale,
        fp8_tflops=base.fp8_tflops * scale,
        source=base.source if row else f"estimated: {base.name} scaled by multiprocessors",
        aliases=(),
        is_estimated=row is None,
    )


def _same_board(properties: Any) -> GpuFacts | None:
    """The row with the board's name, multiprocessors and capability; of several, the nearest in memory."""
    words = set(_words(properties.name))
    rows = [
        gpu
        for gpu in GPUS
        if gpu.capability == _capability(properties)
        and gpu.multiprocessors == properties.multi_processor_count
        and any(set(_words(name)) <= words for name in (gpu.name, *gpu.aliases))
    ]
    return min(rows, key=lambda gpu: abs(gpu.memory_bytes - properties.total_memory), default=None)


def _nearest(properties: Any) -> GpuFacts:
    """The row of the nearest capability not above the board's; of several, the nearest in size."""
    capability = _capability(properties)
    below = [gpu for gpu in GPUS if gpu.capability <= capability] or list(GPUS)
    return min(
        below,
        key=lambda gpu: (
            abs(capability - gpu.capability),
            abs(gpu.multiprocessors - properties.multi_processor_count),
        ),
    )


def _clocked_gb_s(properties: Any) -> float:
    """Bandwidth from the memory clock (kHz) and the width of the bus (bits); 0 where the driver hides them.

    Two transfers per clock, as drivers state it for every kind of memory.
    """
    clock_khz, bus_bits = (getattr(properties, name, 0) for name in ("memory_clock_rate", "memory_bus_width"))
    return float(2 * clock_khz * 1e3 * bus_bits / 8 / 1e9)


def _capability(properties: Any) -> int:
    return int(properties.major * 10 + properties.minor)


def _words(name: str) -> list[str]:
    """Words and numbers of a name, in lower case, without the maker's."""
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word not in ("", "nvidia", "geforce")]
