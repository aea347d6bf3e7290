# SPDX-License-Identifier: Apache-2.0
"""A machine's facts as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from quantrt.report.quantities import bytes_text
from quantrt.report.tables import facts, table

__all__ = ["device_facts", "device_line", "gpu_table"]


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


def device_line(device: Mapping[str, Any], library: str = "") -> str:
    """The machine in one line, for the description of an engine of `library`: of "cuda" its GPU."""
    if library == "cuda":
        planned = device.get("planned_for")
        return f"no GPU, planned for {planned['name']}" if planned else _gpu_line(device.get("gpu"))
    return f"{device.get('cpu', 'unknown CPU')}, {device.get('available_cores') or '?'} cores"


def gpu_table(gpus: Sequence[Mapping[str, Any]]) -> Table:
    """A row per GPU: what it is, and what its tensor cores multiply ("tensor_cores": precision -> bool)."""
    rows = [
        (
            gpu["name"],
            gpu["compute_capability"],
            bytes_text(gpu["memory_bytes"]),
            gpu["driver"] or "unknown",
            ", ".join(name for name, has in gpu["tensor_cores"].items() if has) or "none",
        )
        for gpu in gpus
    ]
    columns = ("gpu", "capability", "memory", "driver", "tensor cores")
    return table(columns, rows, left=("driver", "tensor cores"))


def _cores_text(device: Mapping[str, Any]) -> str:
    physical = "unknown" if device["physical_cores"] is None else device["physical_cores"]
    logical, available = device["logical_cores"], device["available_cores"]
    return f"{physical} physical, {logical} logical, {available} for this process"


def _gpu_line(gpus: list[Mapping[str, Any]] | None) -> str:
    if not gpus:
        return "unknown GPU"
    gpu = gpus[0]
    return f"{gpu['name']}, {bytes_text(gpu['memory_bytes'])}, driver {gpu.get('driver') or 'unknown'}"


def _gpu_text(gpus: list[Mapping[str, Any]] | None) -> str:
    if not gpus:
        return "none"
    return "; ".join(
        f"{gpu['name']}, {bytes_text(gpu['memory_bytes'])}, compute capability {gpu['compute_capability']}, "
        f"driver {gpu['driver'] or 'unknown'}"
        for gpu in gpus
    )
