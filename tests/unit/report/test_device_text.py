# SPDX-License-Identifier: Apache-2.0
"""The machine's facts as text, also where little is known."""

import pytest

from quantrt.device import describe_device
from quantrt.report.device_text import device_facts, device_line, gpu_table
from quantrt.report.tables import show

UNKNOWN = {
    "cpu": "arm",
    "architecture": "arm64",
    "physical_cores": None,
    "logical_cores": 8,
    "available_cores": 8,
    "isa": [],
    "memory_bytes": None,
    "os": "Darwin 24",
    "python": "3.11",
    "libraries": {"numpy": "2.4", "openvino": None},
    "gpu": None,
}


def test_what_is_unknown_is_called_unknown(capsys: pytest.CaptureFixture[str]):
    show(device_facts(UNKNOWN))
    out = capsys.readouterr().out
    assert "unknown physical, 8 logical" in out
    assert "openvino missing" in out
    assert "none of interest found" in out


def test_gpus_are_listed(capsys: pytest.CaptureFixture[str]):
    gpu = {"name": "NVIDIA H200", "memory_bytes": 141 * 10**9, "driver": "570", "compute_capability": "9.0"}
    show(device_facts({**UNKNOWN, "gpu": [gpu]}))
    assert "NVIDIA H200, 141 GB, compute capability 9.0, driver 570" in capsys.readouterr().out


def test_this_machine(capsys: pytest.CaptureFixture[str]):
    facts = describe_device()
    show(device_facts(facts))
    assert facts["cpu"] in capsys.readouterr().out
    assert facts["cpu"] in device_line(facts)


H200 = {"name": "NVIDIA H200", "memory_bytes": 141 * 10**9, "driver": None, "compute_capability": "9.0"}


def test_an_engine_for_a_gpu_is_described_by_it():
    assert device_line({**UNKNOWN, "gpu": [H200]}) == "arm, 8 cores"
    assert device_line({**UNKNOWN, "gpu": [H200]}, "cuda") == "NVIDIA H200, 141 GB, driver unknown"
    assert device_line(UNKNOWN, "cuda") == "unknown GPU"
    assert device_line({**UNKNOWN, "planned_for": H200}, "cuda") == "no GPU, planned for NVIDIA H200"


def test_what_the_tensor_cores_of_each_gpu_multiply(capsys: pytest.CaptureFixture[str]):
    old = {**H200, "name": "Old", "compute_capability": "6.1", "driver": "470"}
    show(
        gpu_table(
            [
                {**H200, "tensor_cores": {"fp16": True, "int8": True, "fp8": True}},
                {**old, "tensor_cores": {"fp16": False, "int8": False, "fp8": False}},
            ]
        )
    )
    first, second = capsys.readouterr().out.splitlines()[2:]
    assert first.split() == ["NVIDIA", "H200", "9.0", "141", "GB", "unknown", "fp16,", "int8,", "fp8"]
    assert second.split()[-2:] == ["470", "none"]
