# SPDX-License-Identifier: Apache-2.0
"""Numbers with their units, for people."""

from __future__ import annotations

import math
from collections.abc import Mapping

__all__ = ["bytes_text", "count_text", "db_text", "error_text", "memory_text", "ms_text", "ratio_text"]


def bytes_text(size_bytes: float) -> str:
    """For example `3.94 MB`; powers of 1000."""
    if size_bytes < 1000:
        return f"{size_bytes:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size_bytes /= 1000
        if size_bytes < 999.5:
            return f"{size_bytes:.3g} {unit}"
    return f"{size_bytes:.0f} GB"


def memory_text(peak: Mapping[str, int | None]) -> str:
    """What quantrt.runtime.peak_memory tells: `1.2 GB`, where a GPU was used `1.2 GB, 18.4 GB on the GPU`."""
    host, device = (bytes_text(peak[name] or 0) for name in ("host_bytes", "device_bytes"))
    return host if peak["device_bytes"] is None else f"{host}, {device} on the GPU"


def count_text(count: float) -> str:
    """For example `25.6 M`."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f}"


def ms_text(latency_ms: float) -> str:
    """Three significant digits or more, without an exponent: `0.0412`, `4.12`, `412`."""
    return f"{latency_ms:.3g}" if latency_ms < 1000 else f"{latency_ms:.0f}"


def ratio_text(ratio: float) -> str:
    """A speed ratio: `1.84x`."""
    return f"{ratio:.2f}x"


def db_text(decibels: float) -> str:
    """For example `41.3`; `same` for equal values, which have no noise at all."""
    return "same" if math.isinf(decibels) and decibels > 0 else f"{decibels:.1f}"


def error_text(value: float) -> str:
    """A difference in three significant digits."""
    return "0" if value == 0 else f"{value:.3g}"
