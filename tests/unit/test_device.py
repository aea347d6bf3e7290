# SPDX-License-Identifier: Apache-2.0
"""Facts about the machine are read from text as kernels print it, and never made up."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from quantrt import device, threads
from quantrt.device import (
    describe_device,
    gpu_precisions,
    nvidia_driver,
    parse_cpuinfo,
    parse_nvidia_smi,
    precision_facts,
    saturates,
)


def x86_cpuinfo(name: str, flags: str, *, cores: int, threads_per_core: int, sockets: int = 1) -> str:
    """The text of /proc/cpuinfo of an x86 machine; siblings are listed after all first threads."""
    blocks = []
    for _thread in range(threads_per_core):
        for socket in range(sockets):
            for core in range(cores):
                blocks.append(
                    f"processor\t: {len(blocks)}\nmodel name\t: {name}\nphysical id\t: {socket}\n"
                    f"siblings\t: {cores * threads_per_core}\ncore id\t\t: {core}\ncpu cores\t: {cores}\n"
                    f"flags\t\t: fpu vme sse {flags} lahf_lm\nbogomips\t: 5400.00\n"
                )
    return "\n".join(blocks) + "\n"


AMX = x86_cpuinfo(
    "Intel(R) Xeon(R) Platinum 8480+",
    "sse4_2 avx f16c fma avx2 avx512f avx512bw avx512_vnni avx512_bf16 avx_vnni amx_bf16 amx_tile amx_int8",
    cores=4,
    threads_per_core=2,
    sockets=2,
)
ZEN4 = x86_cpuinfo(
    "AMD EPYC 9654 96-Core Processor",
    "sse4_2 avx f16c fma avx2 avx512f avx512bw avx512_bf16 avx512_vnni",
    cores=8,
    threads_per_core=1,
)
HASWELL = x86_cpuinfo("Intel(R) Core(TM) i7-4770", "sse4_2 avx f16c fma avx2", cores=4, threads_per_core=2)
ALDER_LAKE = x86_cpuinfo("12th Gen Intel", "sse4_2 avx f16c fma avx2 avx_vnni", cores=6, threads_per_core=2)
NEOVERSE_V1 = "\n".join(
    f"processor\t: {number}\nBogoMIPS\t: 2100.00\n"
    "Features\t: fp asimd aes crc32 atomics fphp asimdhp cpuid asimddp sve i8mm bf16 svei8mm svebf16\n"
    "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\nCPU revision\t: 1\n"
    for number in range(3)
)
UNKNOWN_ARM = NEOVERSE_V1.replace("0xd40", "0xfff")


@pytest.mark.parametrize(
    ("text", "name", "physical_cores"),
    [
        pytest.param(AMX, "Intel(R) Xeon(R) Platinum 8480+", 8, id="two sockets, hyper-threading"),
        pytest.param(ZEN4, "AMD EPYC 9654 96-Core Processor", 8, id="no siblings"),
        pytest.param(HASWELL, "Intel(R) Core(TM) i7-4770", 4, id="hyper-threading"),
        pytest.param(NEOVERSE_V1, "Arm Neoverse V1", 3, id="arm"),
        pytest.param(UNKNOWN_ARM, "arm64 implementer 0x41 part 0xfff", 3, id="arm core without a name"),
        pytest.param("", "", None, id="no text, as on macOS"),
        pytest.param("processor\t: 0\nmodel name\t: Some CPU\n", "Some CPU", None, id="no core numbers"),
    ],
)
def test_name_and_cores(text: str, name: str, physical_cores: int | None):
    facts = parse_cpuinfo(text)
    assert (facts.name, facts.physical_cores) == (name, physical_cores)


@pytest.mark.parametrize(
    ("text", "has", "has_not"),
    [
        pytest.param(AMX, {"amx_int8", "amx_bf16", "avx512_vnni", "avx_vnni"}, {"neon"}, id="amx"),
        pytest.param(ZEN4, {"avx512_vnni", "avx512_bf16"}, {"amx_int8", "avx_vnni"}, id="zen4"),
        pytest.param(HASWELL, {"avx2", "fma"}, {"avx512f", "avx512_vnni"}, id="haswell"),
        pytest.param(
            NEOVERSE_V1, {"neon", "neon_dotprod", "neon_i8mm", "neon_bf16", "sve"}, {"bf16"}, id="arm"
        ),
    ],
)
def test_instruction_sets(text: str, has: set[str], has_not: set[str]):
    isa = set(parse_cpuinfo(text).isa)
    assert has <= isa
    assert not has_not & isa
    assert "sse" not in isa, "flags that do not matter are left out"


@pytest.mark.parametrize(
    ("text", "int8", "bf16"),
    [
        pytest.param(AMX, (True, "AMX"), (True, "amx_bf16"), id="amx"),
        pytest.param(
            ZEN4, (True, "AVX512-VNNI, u8 x s8 without saturation"), (True, "avx512_bf16"), id="zen4"
        ),
        pytest.param(ALDER_LAKE, (True, "AVX-VNNI (256 bit)"), (False, "emulated"), id="alder lake"),
        pytest.param(HASWELL, (False, "saturate at 16 bits"), (False, "emulated"), id="haswell"),
        pytest.param(NEOVERSE_V1, (True, "i8mm"), (True, "neon_bf16"), id="arm"),
        pytest.param("", (False, "expect no gain"), (False, "emulated"), id="nothing known"),
    ],
)
def test_what_the_instruction_sets_mean(text: str, int8: tuple[bool, str], bf16: tuple[bool, str]):
    facts = {row.precision: row for row in precision_facts(parse_cpuinfo(text).isa)}
    assert facts["int8"].is_native is int8[0]
    assert int8[1] in facts["int8"].meaning
    assert facts["bf16"].is_native is bf16[0]
    assert bf16[1] in facts["bf16"].meaning


@pytest.mark.parametrize(
    ("isa", "is_so"),
    [("avx avx2", True), ("avx2 avx512f", True), ("avx2 avx_vnni", False), ("avx2 avx512_vnni", False),
     ("neon_dotprod", False), ("", False)],
)  # fmt: skip
def test_pairs_of_products_saturate_on_x86_without_vnni(isa: str, is_so: bool):
    assert saturates(isa.split()) is is_so


def test_gpus_from_nvidia_smi():
    text = "NVIDIA H200, 143771, 570.86.15, 9.0\nNVIDIA GeForce RTX 4090, 24564, 570.86.15, 8.9\n"
    first, second = parse_nvidia_smi(text)
    assert first == {
        "name": "NVIDIA H200",
        "memory_bytes": 143771 * 2**20,
        "driver": "570.86.15",
        "compute_capability": "9.0",
    }
    assert second["name"] == "NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize("text", ["", "No devices were found\n", "NVIDIA T4, [N/A], 570, 7.5\n"])
def test_text_without_a_usable_gpu_gives_none(text: str):
    assert parse_nvidia_smi(text) == []


@pytest.mark.parametrize(
    ("capability", "precisions"),
    [("6.1", ""), ("7.0", "fp16"), ("7.5", "fp16 int8"), ("8.6", "fp16 int8"), ("8.9", "fp16 int8 fp8")]
    + [
        ("9.0", "fp16 int8 fp8"),
        ("10.0", "fp16 int8 fp8"),
        ("12.0", "fp16 int8 fp8"),
        ("[N/A]", ""),
        ("", ""),
    ],
)
def test_what_tensor_cores_multiply(capability: str, precisions: str):
    assert [name for name, has in gpu_precisions(capability).items() if has] == precisions.split()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.06  Wed Jun 26 06:46:07 UTC 2024\n"
            "GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)\n",
            "535.183.06",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs)\n",
            "570.86.15",
        ),
        ("GCC version:  gcc version 11.4.0 \n", None),
        ("", None),
    ],
)
def test_the_driver_of_nvidia(text: str, version: str | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device, "_read", lambda path: text)
    assert nvidia_driver() == version


def test_this_machine_is_json_ready_and_has_the_keys():
    facts = describe_device()
    assert json.loads(json.dumps(facts)) == facts
    assert {"cpu", "isa", "physical_cores", "logical_cores", "memory_bytes", "os", "libraries", "gpu"} <= set(
        facts
    )
    assert facts["libraries"]["numpy"]
    assert facts["logical_cores"] == os.cpu_count()


def test_a_system_without_procfs_still_answers(monkeypatch: pytest.MonkeyPatch):
    def no_sysconf(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(device, "_read", lambda path: "")
    monkeypatch.setattr(threads, "CGROUPS", Path("/nowhere"))
    monkeypatch.setattr(device.os, "sysconf", no_sysconf)
    monkeypatch.delattr(device.os, "sched_getaffinity")
    monkeypatch.setattr(device.shutil, "which", lambda name: None)
    facts = describe_device()
    assert facts["isa"] == []
    assert facts["physical_cores"] is None
    assert facts["memory_bytes"] is None
    assert facts["gpu"] is None
    assert facts["available_cores"] == os.cpu_count()


def test_a_container_bounds_cores_and_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    monkeypatch.setattr(threads, "CGROUPS", tmp_path)
    monkeypatch.setattr(threads, "OWN_CGROUPS", tmp_path / "none")
    texts = {"/sys/fs/cgroup/memory.max": "1073741824\n"}
    monkeypatch.setattr(device, "_read", lambda path: texts.get(path, ""))
    monkeypatch.setattr(device.os, "sched_getaffinity", lambda pid: set(range(8)))
    facts = describe_device()
    assert facts["available_cores"] == 2, "1.5 cores are two threads"
    assert facts["memory_bytes"] == 2**30


def test_a_hanging_nvidia_smi_is_no_gpu(monkeypatch: pytest.MonkeyPatch):
    def hang(*args: object, **kwargs: object) -> None:
        raise subprocess.TimeoutExpired("nvidia-smi", 20)

    monkeypatch.setattr(device.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(device.subprocess, "run", hang)
    assert describe_device()["gpu"] is None
