# SPDX-License-Identifier: Apache-2.0
"""Facts of NVIDIA GPUs, as values: what decides which kernels are legal there and how fast they can be.

Peaks are dense (no 2:4 sparsity) and of the tensor cores, with float32 accumulation for fp16 and fp8: GeForce
boards run that at half the rate of float16 accumulation, which no kernel here uses. Shared memory per block
is by compute capability (CUDA C++ Programming Guide, table of technical specifications).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from quantrt.errors import UsageError, close_match

__all__ = [
    "BANDWIDTH_RATIO",
    "GPUS",
    "LAUNCH_US",
    "PEAK_RATIO",
    "TARGETS",
    "GpuFacts",
    "gpu_named",
    "gpu_of_target",
    "gpu_sold_as",
    "shared_memory_of",
]

LAUNCH_US = 2.0
"""From the end of one kernel to the start of the next inside a CUDA graph, about."""

FP8_CAPABILITY = 89
"""Ada: the first with fp8 in its tensor cores, and with conversions to it (PTX ISA, cvt)."""
PEAK_RATIO = 0.75
"""Of a data sheet's peak, what large products are taken to reach."""
BANDWIDTH_RATIO = 0.875
"""Of a data sheet's bandwidth, what a copy is taken to reach."""

_GIB = 2**30
_MIB = 2**20
_KIB = 2**10

_TURING = "NVIDIA T4 datasheet; NVIDIA Turing GPU Architecture, WP-09183-001, appendix on Tesla T4"
_VOLTA = "NVIDIA Tesla V100 GPU Architecture, WP-08608-001, table 1"
_A10 = "NVIDIA A10 datasheet; NVIDIA Ampere GA102 GPU Architecture v2"
_A100 = "NVIDIA A100 datasheet; NVIDIA A100 Tensor Core GPU Architecture, table 1"
_GA102 = "NVIDIA Ampere GA102 GPU Architecture v2, tables 2 and 8"
_ADA = "NVIDIA Ada GPU Architecture v2.01, appendix A"
_L4 = "NVIDIA L4 datasheet; NVIDIA Ada GPU Architecture v2.01, appendix C"
_L40S = "NVIDIA L40S datasheet; L2 of the L40 in NVIDIA Ada GPU Architecture v2.01, appendix B"
_H100 = "NVIDIA H100 datasheet; NVIDIA H100 Tensor Core GPU Architecture, table 3"
_H200 = "NVIDIA H200 datasheet"
_B200 = "NVIDIA DGX B200 datasheet; https://docs.nvidia.com/cuda/blackwell-tuning-guide"
_RTX_BLACKWELL = "NVIDIA RTX Blackwell GPU Architecture v1.1, appendix A"
_ORIN = "NVIDIA Jetson AGX Orin Series Technical Brief v1.2; 85 sparse fp16 TFLOP/s halved"


@dataclass(frozen=True)
class GpuFacts:
    """One GPU.

    Attributes:
        capability: compute capability, major and minor in one number, such as 90.
        memory_bytes: as sold; of a device that is here, what its driver reports.
        bandwidth_gb_s: peak of its memory, in 1e9 bytes per second.
        shared_memory_bytes: most that one block can opt in to.
        fp32_tflops: peak without tensor cores.
        fp16_tflops: dense tensor-core peak.
        int8_tops: dense tensor-core peak; 0 without int8 tensor cores.
        fp8_tflops: dense tensor-core peak; 0 without fp8.
        source: of the figures.
        aliases: other names it is found under.
        is_estimated: whether bandwidth and peaks are scaled from another GPU's instead of published.
    """

    name: str
    capability: int
    multiprocessors: int
    memory_bytes: int
    bandwidth_gb_s: float
    shared_memory_bytes: int
    l2_bytes: int
    fp32_tflops: float
    fp16_tflops: float
    int8_tops: float
    fp8_tflops: float
    source: str
    aliases: tuple[str, ...] = ()
    is_estimated: bool = False

    @property
    def memory_bytes_per_us(self) -> float:
        """What its memory reaches of the peak, as a copy does, in bytes per microsecond."""
        return 1e3 * self.bandwidth_gb_s * BANDWIDTH_RATIO

    @property
    def has_int8_tensor_cores(self) -> bool:
        """Whether tensor cores multiply int8: from Xavier (7.2) and Turing (7.5) on, not on Volta."""
        return self.capability >= 72

    @property
    def has_fp8_tensor_cores(self) -> bool:
        """Whether tensor cores multiply FP8, and numbers are converted to it and back."""
        return self.capability >= FP8_CAPABILITY


GPUS = (
    GpuFacts(
        "T4", 75, 40, 16 * _GIB, 320, 64 * _KIB, 4 * _MIB, 8.1, 65, 130, 0, _TURING, ("Tesla T4",)
    ),
    GpuFacts(
        "V100", 70, 80, 16 * _GIB, 900, 96 * _KIB, 6 * _MIB, 15.7, 125, 0, 0, _VOLTA, ("V100 SXM2",)
    ),
    GpuFacts("A10", 86, 72, 24 * _GIB, 600, 99 * _KIB, 6 * _MIB, 31.2, 125, 250, 0, _A10),
    GpuFacts(
        "A100 40GB", 80, 108, 40 * _GIB, 1555, 163 * _KIB, 40 * _MIB, 19.5, 312, 624, 0, _A100, ("A800 40GB",)
    ),
    GpuFacts(
        "A100 80GB", 80, 108, 80 * _GIB, 2039, 163 * _KIB, 40 * _MIB, 19.5, 312, 624, 0, _A100,
        ("A100", "A800", "A800 80GB"),
    ),
    GpuFacts("RTX 3080", 86, 68, 10 * _GIB, 760, 99 * _KIB, 5 * _MIB, 29.8, 59.5, 238, 0, _GA102, ("3080",)),
    GpuFacts("RTX 3090", 86, 82, 24 * _GIB, 936, 99 * _KIB, 6 * _MIB, 35.6, 71, 284, 0, _GA102, ("3090",)),
    GpuFacts(
        "RTX 4090", 89, 128, 24 * _GIB, 1008, 99 * _KIB, 72 * _MIB, 82.6, 165.2, 660.6, 330.3, _ADA, ("4090",)
    ),
    GpuFacts("L4", 89, 58, 24 * _GIB, 300, 99 * _KIB, 48 * _MIB, 30.3, 121, 242.5, 242.5, _L4),
    GpuFacts("L40S", 89, 142, 48 * _GIB, 864, 99 * _KIB, 96 * _MIB, 91.6, 362, 733, 733, _L40S),
    GpuFacts(
        "H100 SXM", 90, 132, 80 * _GIB, 3350, 227 * _KIB, 50 * _MIB, 67, 989.4, 1978.9, 1978.9, _H100,
        ("H100", "H100 80GB"),
    ),
    GpuFacts("H200", 90, 132, 141 * _GIB, 4800, 227 * _KIB, 60 * _MIB, 67, 989.4, 1978.9, 1978.9, _H200),
    GpuFacts("B200", 100, 148, 180 * _GIB, 8000, 227 * _KIB, 126 * _MIB, 75, 2250, 4500, 4500, _B200),
    GpuFacts(
        "RTX 5090", 120, 170, 32 * _GIB, 1792, 99 * _KIB, 96 * _MIB, 104.8, 209.5, 838, 419, _RTX_BLACKWELL,
        ("5090",),
    ),
    GpuFacts(
        "Orin", 87, 16, 64 * _GIB, 204.8, 163 * _KIB, 4 * _MIB, 5.3, 42.5, 85, 0, _ORIN,
        ("AGX Orin", "Jetson AGX Orin", "Jetson AGX Orin 64GB"),
    ),
)  # fmt: skip
"""GPUs that engines are planned for without being there. A100 and A800 differ in NVLink alone."""

TARGETS = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_120")
"""Compute capabilities that kernels are compiled for, as compilers write them."""


def gpu_of_target(target: str) -> GpuFacts:
    """The first row of a capability, which stands for all GPUs of it.

    Args:
        target: one of TARGETS.

    Raises:
        UsageError: there is none.
    """
    found = next((gpu for gpu in GPUS if f"sm_{gpu.capability}" == target), None)
    if found is None:
        near = close_match(target, TARGETS)
        hint = f"'{near}'" if near else "--target sm_90"
        if target in {f"sm_{gpu.capability}" for gpu in GPUS} | {"sm_70", "sm_72"}:
            hint = "--device cuda on that GPU itself: kernels are compiled ahead for sm_80 and newer"
        raise UsageError(f"unknown target '{target}'", expected="one of " + ", ".join(TARGETS), hint=hint)
    return found


def shared_memory_of(capability: int) -> int | None:
    """Bytes of shared memory that one block can opt in to; None for a capability without a row."""
    return next((gpu.shared_memory_bytes for gpu in GPUS if gpu.capability == capability), None)


def gpu_named(name: str) -> GpuFacts:
    """The row of that name or alias, in any case; "NVIDIA", spaces, "-" and "_" make no difference.

    Raises:
        UsageError: there is none; suggests the nearest.
    """
    names = {_plain(word): gpu for gpu in GPUS for word in (gpu.name, *gpu.aliases)}
    found = names.get(_plain(name))
    if found is None:
        near = close_match(_plain(name), names)
        known = ", ".join(gpu.name for gpu in GPUS)
        hint = f"'{names[near].name}'" if near else "one of the known names"
        raise UsageError(f"no facts of a GPU named '{name}'", expected=f"one of {known}", hint=hint)
    return found


def gpu_sold_as(name: str) -> GpuFacts | None:
    """The row that a driver's name for a board means, such as "NVIDIA H200"; None where there is none.

    All words of a row's name or of an alias are in it; of several rows the one with the most words.
    """
    words = set(_words(name))
    fitting = [
        (len(_words(word)), -number, gpu)
        for number, gpu in enumerate(GPUS)
        for word in (gpu.name, *gpu.aliases)
        if set(_words(word)) <= words
    ]
    return max(fitting, key=lambda row: row[:2])[2] if fitting else None


def _words(name: str) -> list[str]:
    """Words and numbers of a name, in lower case."""
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _plain(name: str) -> str:
    """Lower case, without the words and signs that spellings differ in."""
    text = name.lower().replace("nvidia", "").replace("geforce", "")
    return "".join(sign for sign in text if sign not in " -_")
