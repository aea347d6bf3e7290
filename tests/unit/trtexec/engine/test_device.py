# SPDX-License-Identifier: Apache-2.0
"""Which device is meant, and its section of the log."""

import pytest

from quantrt.errors import DeviceError
from quantrt.trtexec.engine import device
from quantrt.trtexec.engine.device import Device, choose_device, device_lines

DETAILS = {
    "name": "NVIDIA H200",
    "uuid": "GPU-1234",
    "compute_capability": "9.0",
    "multiprocessors": 132,
    "memory_bytes": 139 * 2**30,
    "shared_memory_per_multiprocessor_bytes": 228 * 1024,
    "memory_bus_bits": 6144,
    "clock_khz": 1980000,
    "memory_clock_khz": None,
}


def refuse(library: str, *, compiles: bool) -> None:
    raise DeviceError("this machine has no usable GPU")


def test_the_cpu_where_there_is_no_gpu_or_it_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device, "check_library", refuse)
    assert choose_device("0") == Device("cpu", "this machine has no usable GPU")
    monkeypatch.setattr(device, "check_library", lambda library, compiles: None)
    assert choose_device("0") == Device("cuda")
    assert choose_device("cpu") == Device("cpu")


def test_a_cpu_has_no_lines_that_would_need_a_number():
    """Readers of logs turn "Compute Capability" and "SMs" into numbers."""
    found = list(device_lines(Device("cpu")))
    assert found[:2] == ["=== Device Information ===", "Available Devices: 1"]
    labels = {line.partition(": ")[0] for line in found}
    assert {"Selected Device", "Selected Device ID", "Device Global Memory"} <= labels
    assert not {"Compute Capability", "SMs", "Memory Bus Width"} & labels


def test_a_gpu_with_what_its_driver_tells(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch", reason="the module under test imports torch")
    monkeypatch.setattr("quantrt.runtime.cuda.device.local_gpu.gpu_details", lambda: DETAILS)
    assert list(device_lines(Device("cuda")))[2:12] == [
        '  Device 0: "NVIDIA H200" UUID: GPU-1234',
        "Selected Device: NVIDIA H200",
        "Selected Device ID: 0",
        "Selected Device UUID: GPU-1234",
        "Compute Capability: 9.0",
        "SMs: 132",
        "Device Global Memory: 142336 MiB",
        "Shared Memory per SM: 228 KiB",
        "Memory Bus Width: 6144 bits",
        "Application Compute Clock Rate: 1.98 GHz",
    ]
