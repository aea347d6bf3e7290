# SPDX-License-Identifier: Apache-2.0
"""How many threads a library gets when the user names no number.

ONNX Runtime and OpenVINO count the machine's cores and do not see a container's CPU quota: with
`docker run --cpus=2` on 64 cores they start 64 threads that the kernel then throttles.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["quota_threads", "usable_cores"]

CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Logical cores that this process may use: its affinity, bounded by its container's quota."""
    return quota_threads() or _affinity_cores()


def quota_threads(path: Path = CGROUP_QUOTA) -> int | None:
    """Threads to start because of a container's quota; None when there is none below the number of cores."""
    try:
        quota, _, period = path.read_text(encoding="ascii").partition(" ")
    except (OSError, UnicodeDecodeError):
        return None
    if not (quota.isdigit() and period.strip().isdigit() and int(period)):
        return None
    cores = max(1, math.ceil(int(quota) / int(period)))
    return cores if cores < _affinity_cores() else None


def _affinity_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
