# SPDX-License-Identifier: Apache-2.0
"""How many threads a library gets when the user names no number.

ONNX Runtime and OpenVINO count the machine's cores and see neither a container's CPU quota nor, ONNX Runtime,
the cores that a process is bound to: with `docker run --cpus=2` on 64 cores they start 64 threads that the
kernel then throttles, and under `taskset` ONNX Runtime binds its threads to cores of others.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["bounded_threads", "usable_cores"]

CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota: Path | None = None) -> int:
    """Logical cores that this process may use: its affinity, bounded by its container's quota.

    Args:
        quota: the file with the quota; by default CGROUP_QUOTA.
    """
    cores = _affinity_cores()
    return min(cores, _quota_cores(quota or CGROUP_QUOTA) or cores)


def bounded_threads(quota: Path | None = None) -> int | None:
    """Threads to start where this process may use less than the machine; None where it may use all of it.

    Args:
        quota: as of `usable_cores`.
    """
    cores = usable_cores(quota)
    return cores if cores < (os.cpu_count() or 1) else None


def _affinity_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota_cores(path: Path) -> int | None:
    """Cores that the quota is worth, rounded up; None without a quota."""
    try:
        quota, _, period = path.read_text(encoding="ascii").partition(" ")
    except (OSError, UnicodeDecodeError):
        return None
    if not (quota.isdigit() and period.strip().isdigit() and int(period)):
        return None
    return max(1, math.ceil(int(quota) / int(period)))
