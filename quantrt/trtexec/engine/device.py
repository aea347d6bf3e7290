# SPDX-License-Identifier: Apache-2.0
"""Which device a command line means here, and what the log says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quantrt.device import describe_device
from quantrt.errors import DeviceError
from quantrt.runtime.executor import check_library
from quantrt.trtexec.flags.settings import CPU

__all__ = ["Device", "choose_device", "device_lines"]

MIB = 2**20
KIB = 2**10


@dataclass(frozen=True)
class Device:
    """A device.

    Attributes:
        name: "cuda" or "cpu".
        why: why it is the CPU although a GPU was asked for, one phrase; None otherwise.
    """

    name: str
    why: str | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.name == "cuda"


def choose_device(asked: str) -> Device:
    """The GPU where there is one that kernels can be compiled for, else the CPU.

    Args:
        asked: the value of --device.
    """
    if asked == CPU:
        return Device(CPU)
    try:
        check_library("cuda", compiles=True)
    except DeviceError as error:
        return Device(CPU, error.message)
    return Device("cuda")


def device_lines(device: Device) -> Iterator[str]:
    """The section on the device; what its driver hides is left out."""
    yield "=== Device Information ==="
    yield "Available Devices: 1"
    rows = _gpu_rows() if device.is_gpu else _cpu_rows()
    uuid = f" UUID: {rows['Selected Device UUID']}" if rows.get("Selected Device UUID") else ""
    yield f'  Device 0: "{rows["Selected Device"]}"{uuid}'
    yield from (f"{label}: {value}" for label, value in rows.items() if value is not None)
    yield ""
    if device.is_gpu:
        yield "Note: The application clock rates are not those that the GPU is running at now."
    else:
        yield "Note: This is a CPU: GPU Compute Time is what it takes to compute, and nothing is copied."
    yield ""


def _cpu_rows() -> dict[str, str | None]:
    facts = describe_device(with_gpu=False)
    memory = facts["memory_bytes"]
    return {
        "Selected Device": str(facts["cpu"]),
        "Selected Device ID": "0",
        "Cores": str(facts["available_cores"]),
        "Instruction sets": " ".join(facts["isa"]) or None,
        "Device Global Memory": None if memory is None else f"{memory // MIB} MiB",
    }


def _gpu_rows() -> dict[str, str | None]:
    from quantrt.runtime.cuda.device.local_gpu import gpu_details  # torch is optional

    facts = gpu_details()
    shared = facts["shared_memory_per_multiprocessor_bytes"]
    return {
        "Selected Device": str(facts["name"]),
        "Selected Device ID": "0",
        "Selected Device UUID": facts["uuid"],
        "Compute Capability": str(facts["compute_capability"]),
        "SMs": str(facts["multiprocessors"]),
        "Device Global Memory": f"{facts['memory_bytes'] // MIB} MiB",
        "Shared Memory per SM": None if shared is None else f"{shared // KIB} KiB",
        "Memory Bus Width": _with_unit(facts["memory_bus_bits"], 1, "bits"),
        "Application Compute Clock Rate": _with_unit(facts["clock_khz"], 1e6, "GHz"),
        "Application Memory Clock Rate": _with_unit(facts["memory_clock_khz"], 1e6, "GHz"),
    }


def _with_unit(value: Any, divisor: float, unit: str) -> str | None:
    return f"{value / divisor:g} {unit}" if value else None
