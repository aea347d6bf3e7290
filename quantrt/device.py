# SPDX-License-Identifier: Apache-2.0
"""Facts about this machine, as values: what the CPU can do, how much there is, which libraries are here."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantrt.threads import usable_cores

__all__ = [
    "CpuFacts",
    "PrecisionFacts",
    "describe_device",
    "gpu_precisions",
    "has_bf16",
    "nvidia_driver",
    "parse_cpuinfo",
    "parse_nvidia_smi",
    "precision_facts",
    "saturates",
]

LIBRARIES = (
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxruntime",
    "openvino",
    "torch",
    "triton",
    "nvidia-cudnn-frontend",
)

# Flag in /proc/cpuinfo -> our name. x86 keeps the kernel's names (arch/x86/include/asm/cpufeatures.h);
# arm64's are prefixed, for "bf16" and "i8mm" say too little alone (arch/arm64/kernel/cpuinfo.c).
_X86_FLAGS = (
    "sse4_2 avx avx2 fma f16c avx512f avx512bw avx512_vnni avx512_bf16 avx512_fp16 avx_vnni avx_vnni_int8 "
    "amx_tile amx_int8 amx_bf16 amx_fp16"
).split()
_ARM_FLAGS = {
    "asimd": "neon",
    "asimdhp": "neon_fp16",
    "asimddp": "neon_dotprod",
    "i8mm": "neon_i8mm",
    "bf16": "neon_bf16",
    "sve": "sve",
    "sve2": "sve2",
    "svei8mm": "sve_i8mm",
    "svebf16": "sve_bf16",
    "sme": "sme",  # codespell:ignore sme
}

# "CPU implementer", "CPU part" of /proc/cpuinfo -> name: Linux' arch/arm64/include/asm/cputype.h.
_ARM_CORES = {
    ("0x41", "0xd03"): "Arm Cortex-A53",
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0b"): "Arm Cortex-A76",
    ("0x41", "0xd0c"): "Arm Neoverse N1",
    ("0x41", "0xd40"): "Arm Neoverse V1",
    ("0x41", "0xd49"): "Arm Neoverse N2",
    ("0x41", "0xd4f"): "Arm Neoverse V2",
    ("0x41", "0xd84"): "Arm Neoverse V3",
    ("0x41", "0xd8e"): "Arm Neoverse N3",
}


@dataclass(frozen=True)
class CpuFacts:
    """What /proc/cpuinfo says.

    Attributes:
        name: of the model; empty when the text does not tell.
        isa: names of the instruction sets that matter for inference, sorted.
        physical_cores: None when the text does not tell.
    """

    name: str
    isa: tuple[str, ...]
    physical_cores: int | None


@dataclass(frozen=True)
class PrecisionFacts:
    """What an instruction set means for one precision.

    Attributes:
        precision: "int8", "bf16" or "fp32".
        is_native: whether instructions of its own compute it, so that it can be faster than fp32.
        meaning: one phrase.
    """

    precision: str
    is_native: bool
    meaning: str


def describe_device(*, with_gpu: bool = True) -> dict[str, Any]:
    """This machine as JSON-ready facts; what cannot be found out is None, never guessed.

    Args:
        with_gpu: ask nvidia-smi, which takes up to a second where there is one.
    """
    text = _read("/proc/cpuinfo")
    facts = parse_cpuinfo(text)
    return {
        "cpu": facts.name or platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "physical_cores": facts.physical_cores,
        "logical_cores": os.cpu_count(),
        "available_cores": usable_cores(),
        "isa": list(facts.isa),
        "memory_bytes": _memory_bytes(),
        "os": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "libraries": {name: _library_version(name) for name in LIBRARIES},
        "gpu": _describe_gpus() if with_gpu else None,
    }


def has_bf16(isa: Collection[str]) -> bool:
    """Whether a CPU with these instruction sets has some for bf16."""
    return _bf16_facts(isa).is_native


def saturates(isa: Collection[str] | None = None) -> bool:
    """Whether libraries add pairs of u8 x s8 products in 16 bits, which saturate: x86 CPUs without VNNI do.

    Args:
        isa: names of instruction sets; by default those of this machine.
    """
    flags = set(parse_cpuinfo(_read("/proc/cpuinfo")).isa if isa is None else isa)
    return "avx2" in flags and not flags & {"avx512_vnni", "avx_vnni", "amx_int8"}


def parse_cpuinfo(text: str) -> CpuFacts:
    """The facts in the text of /proc/cpuinfo; of an empty text, none."""
    blocks = [_fields(block) for block in text.split("\n\n") if block.strip()]
    if not blocks:
        return CpuFacts("", (), None)
    first = blocks[0]
    if "flags" in first:
        flags = set(first["flags"].split())
        isa = [name for name in _X86_FLAGS if name in flags]
    else:
        flags = set(first.get("Features", "").split())
        isa = [name for flag, name in _ARM_FLAGS.items() if flag in flags]
    return CpuFacts(_cpu_name(first), tuple(sorted(isa)), _physical_cores(blocks))


def precision_facts(isa: Collection[str]) -> tuple[PrecisionFacts, ...]:
    """What the instruction sets mean for fp32, bf16 and int8."""
    return (
        PrecisionFacts("fp32", is_native=True, meaning=_fp32_meaning(isa)),
        _bf16_facts(isa),
        _int8_facts(isa),
    )


def parse_nvidia_smi(text: str) -> list[dict[str, Any]]:
    """GPUs in what nvidia-smi prints for name, memory.total (MiB), driver_version, compute_cap; csv."""
    gpus = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and parts[1].isdigit():
            name, memory_mib, driver, capability = parts
            gpus.append(
                {
                    "name": name,
                    "memory_bytes": int(memory_mib) * 2**20,
                    "driver": driver,
                    "compute_capability": capability,
                }
            )
    return gpus


def gpu_precisions(compute_capability: str) -> dict[str, bool]:
    """Whether the tensor cores of a compute capability, such as "9.0", multiply fp16, int8 and fp8.

    fp16 from Volta (7.0) on, int8 from Xavier (7.2) on, fp8 from Ada (8.9) on: CUDA C++ programming guide,
    table of technical specifications.
    """
    parts = compute_capability.split(".")
    version = tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else (0, 0)
    return {"fp16": version >= (7, 0), "int8": version >= (7, 2), "fp8": version >= (8, 9)}


def nvidia_driver() -> str | None:
    """Version of NVIDIA's kernel driver, such as "570.86.15"; None without it."""
    text = _read("/proc/driver/nvidia/version")
    found = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    return found[1] if found else None


def _int8_facts(isa: Collection[str]) -> PrecisionFacts:
    if "amx_int8" in isa:
        meaning = "AMX tiles, u8 x s8 and s8 x s8 into s32 without saturation"
    elif "avx_vnni_int8" in isa:
        meaning = "AVX-VNNI-INT8, u8 x s8 and s8 x s8 without saturation"
    elif "avx512_vnni" in isa:
        meaning = "AVX512-VNNI, u8 x s8 without saturation"
    elif "avx_vnni" in isa:
        meaning = "AVX-VNNI (256 bit), u8 x s8 without saturation"
    elif "neon_i8mm" in isa:
        meaning = "i8mm matrix instructions, u8 x s8 and s8 x s8 without saturation"
    elif "neon_dotprod" in isa:
        meaning = "dot-product instructions, s8 x s8 without saturation"
    elif "avx2" in isa:
        meaning = "no VNNI: pairs of u8 x s8 saturate at 16 bits, expect little gain and check the accuracy"
        return PrecisionFacts("int8", is_native=False, meaning=meaning)
    else:
        meaning = "no int8 dot product: expect no gain over fp32"
        return PrecisionFacts("int8", is_native=False, meaning=meaning)
    return PrecisionFacts("int8", is_native=True, meaning=meaning)


def _bf16_facts(isa: Collection[str]) -> PrecisionFacts:
    for flag in ("amx_bf16", "avx512_bf16", "neon_bf16", "sve_bf16"):
        if flag in isa:
            return PrecisionFacts("bf16", is_native=True, meaning=f"native ({flag})")
    return PrecisionFacts("bf16", is_native=False, meaning="no bf16 instructions: emulated, slower than fp32")


def _fp32_meaning(isa: Collection[str]) -> str:
    widths = (
        ("avx512f", "AVX-512, 16 values per instruction"),
        ("avx2", "AVX2, 8 values per instruction"),
        ("sve", "SVE"),
        ("neon", "NEON, 4 values per instruction"),
    )
    return next((text for flag, text in widths if flag in isa), "no vector instructions found")


def _fields(block: str) -> dict[str, str]:
    """`key : value` lines of one processor."""
    pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cpu_name(fields: dict[str, str]) -> str:
    if "model name" in fields:
        return fields["model name"]
    key = (fields.get("CPU implementer", ""), fields.get("CPU part", ""))
    if key in _ARM_CORES:
        return _ARM_CORES[key]
    return f"arm64 implementer {key[0]} part {key[1]}" if all(key) else ""


def _physical_cores(blocks: list[dict[str, str]]) -> int | None:
    """Distinct (socket, core) pairs; one per processor on arm64, whose text names no cores."""
    processors = [block for block in blocks if "processor" in block]
    if all("core id" in block for block in processors):
        return len({(block.get("physical id", "0"), block["core id"]) for block in processors}) or None
    return len(processors) if all("CPU part" in block for block in processors) and processors else None


def _memory_bytes() -> int | None:
    """Physical memory, bounded by the container's limit."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf; others may lack the name
        return None
    limit = _read("/sys/fs/cgroup/memory.max").strip()
    return min(total, int(limit)) if limit.isdigit() else total


def _library_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _describe_gpus() -> list[dict[str, Any]] | None:
    """What nvidia-smi lists; None without it or without a GPU."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    query = "--query-gpu=name,memory.total,driver_version,compute_cap"
    try:
        done = subprocess.run(
            [command, query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (parse_nvidia_smi(done.stdout) or None) if done.returncode == 0 else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
