# SPDX-License-Identifier: Apache-2.0
"""How fast a device could be: what layers are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quantrt.gpu import BANDWIDTH_RATIO, LAUNCH_US, PEAK_RATIO, GpuFacts, gpu_sold_as
from quantrt.report.engine_layers.layer import EngineLayer

__all__ = ["Peaks", "gpu_peaks"]


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """A roofline.

    Attributes:
        operations_per_us: by precision; two for every multiply-add.
        bytes_per_us: (working set in bytes, rate), the smallest set first: a set that fits in a cache is read
            faster than memory.
        launch_us: least time of a layer that does nothing.
        source: where the figures come from, one phrase.
    """

    operations_per_us: Mapping[str, float]
    bytes_per_us: tuple[tuple[int, float], ...]
    launch_us: float
    source: str

    def memory_us(self, size_bytes: int) -> float:
        """Least microseconds to move so many bytes, at the rate of the smallest set that holds them."""
        rate = next(
            (rate for limit, rate in self.bytes_per_us if size_bytes <= limit), self.bytes_per_us[-1][1]
        )
        return size_bytes / rate

    def compute_us(self, operations: int, precision: str) -> float | None:
        """Least microseconds for so many operations; None where the precision has no peak."""
        rate = self.operations_per_us.get(precision)
        return operations / rate if rate else None

    def raised(self, layers: Sequence[EngineLayer], layer_us: Mapping[str, float]) -> Peaks:
        """No peak is lower than what a layer of the engine reached: a probe may have met other load.

        Args:
            layer_us: microseconds of a layer, by name.
        """
        rates = dict(self.operations_per_us)
        for layer in layers:
            time_us = layer_us.get(layer.name)
            if layer.operations and time_us and layer.computes_in in rates:
                rates[layer.computes_in] = max(rates[layer.computes_in], layer.operations / time_us)
        return replace(self, operations_per_us=rates)


def gpu_peaks(device: Mapping[str, Any]) -> Peaks | None:
    """Of the GPU that an engine was built for, by its data sheet; None where none is known.

    Args:
        device: of a plan.
    """
    rows = device.get("gpu") or ([device["planned_for"]] if device.get("planned_for") else [])
    gpu: GpuFacts | None = gpu_sold_as(rows[0]["name"]) if rows else None
    if gpu is None:
        return None
    peaks = {
        "fp32": gpu.fp32_tflops, "fp16": gpu.fp16_tflops, "bf16": gpu.fp16_tflops, "int8": gpu.int8_tops,
        "fp8": gpu.fp8_tflops,
    }  # fmt: skip
    return Peaks(
        operations_per_us={name: peak * PEAK_RATIO * 1e6 for name, peak in peaks.items() if peak},
        bytes_per_us=((0, gpu.memory_bytes_per_us),),
        launch_us=LAUNCH_US,
        source=f"{gpu.source}, times {PEAK_RATIO:g} for products and {BANDWIDTH_RATIO:g} for memory, which "
        "kernels reach on an H200",
    )
