# SPDX-License-Identifier: Apache-2.0
"""The most memory that this process has held so far, on the host and on a GPU."""

from __future__ import annotations

import resource
import sys

__all__ = ["peak_host_bytes", "peak_memory"]

Peak = dict[str, int | None]


def peak_memory() -> Peak:
    """Both peaks, JSON-ready.

    Returns:
        host_bytes: as `peak_host_bytes`. device_bytes: the most that torch had handed out at a time on the
        GPU in use, which is all but the driver's own and machine code; None where nothing ran on a GPU.
    """
    return {"host_bytes": peak_host_bytes(), "device_bytes": _peak_device_bytes()}


def peak_host_bytes() -> int:
    """Largest resident memory of this process, pages of mapped files that were read among it."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _peak_device_bytes() -> int | None:
    torch = sys.modules.get("torch")  # what was not imported ran nothing
    if torch is None or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.max_memory_allocated())
