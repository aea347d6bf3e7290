# SPDX-License-Identifier: Apache-2.0
"""A machine's facts as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from quantrt.report.quantities import bytes_text
from quantrt.report.tables import facts

__all__ = ["device_facts", "device_line"]


def device_facts(device: Mapping[str, Any]) -> Table:
    """Every fact of `quantrt.device.describe_device`, one per line."""
    libraries = device["libraries"]
    return facts(
        (
            ("cpu", f"{device['cpu']} ({device['architecture']})"),
            ("cores", _cores_text(device)),
            ("isa", " ".join(device["isa"]) or "none of interest found"),
            ("memory", "unknown" if device["memory_bytes"] is None else bytes_text(device["memory_bytes"])),
            ("gpu", _gpu_text(device["gpu"])),
            ("system", f"{device['os']}, Python {device['python']}"),
            ("libraries", ", ".join(f"{name} {version or 'missing'}" for name, version in libraries.items())),
        )
    )


def device_line(device: Mapping[str, Any]) -> str:
    """The machine in one line, for an engine's description."""
    return f"{device.get('cpu', 'unknown CPU')}, {device.get('available_cores') or '?'} cores"


def _cores_text(device: Mapping[str, Any]) -> str:
    physical = "unknown" if device["physical_cores"] is None else device["physical_cores"]
    logical, available = device["logical_cores"], device["available_cores"]
    return f"{physical} physical, {logical} logical, {available} for this process"


def _gpu_text(gpus: list[Mapping[str, Any]] | None) -> str:
    if not gpus:
        return "none"
    return "; ".join(
        f"{gpu['name']}, {bytes_text(gpu['memory_bytes'])}, compute capability {gpu['compute_capability']}, "
        f"driver {gpu['driver']}"
        for gpu in gpus
    )
