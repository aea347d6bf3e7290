# SPDX-License-Identifier: Apache-2.0
"""How many threads a library gets when the user names no number.

ONNX Runtime and OpenVINO count the machine's cores and see neither a container's CPU quota nor, ONNX Runtime,
the cores that a process is bound to: with `docker run --cpus=2` on 64 cores they start 64 threads that the
kernel then throttles, and under `taskset` ONNX Runtime binds its threads to cores of others.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["bounded_threads", "usable_cores"]

CGROUPS = Path("/sys/fs/cgroup")
"""Where the system shows quotas: of version 2 in `cpu.max`, of version 1 in the folder of its controller."""

OWN_CGROUPS = Path("/proc/self/cgroup")
"""In which groups this process is, a line each: NUMBER:CONTROLLERS:PATH."""


def usable_cores(cgroups: Path | None = None, own: Path | None = None) -> int:
    """Logical cores that this process may use: its affinity, bounded by its container's quota.

    Args:
        cgroups, own: the folder with quotas and the file with groups; by default CGROUPS and OWN_CGROUPS.
    """
    quotas = (_quota_cores(folder) for folder in _groups(cgroups or CGROUPS, own or OWN_CGROUPS))
    return min([_affinity_cores(), *(cores for cores in quotas if cores is not None)])


def bounded_threads(cgroups: Path | None = None, own: Path | None = None) -> int | None:
    """Threads to start where this process may use less than the machine; None where it may use all of it.

    Args:
        cgroups, own: as of `usable_cores`.
    """
    cores = usable_cores(cgroups, own)
    return cores if cores < (os.cpu_count() or 1) else None


def _affinity_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _groups(cgroups: Path, own: Path) -> Iterator[Path]:
    """Folders of the groups that bound this process: its own and all around them.

    In a container the path of a group may be the host's, which is not there: its own group is the root then.
    """
    for line in _text(own).splitlines() or ["0::/"]:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroups / controllers
        group = root / path.strip("/")
        yield from (group, *group.parents[: len(group.parts) - len(root.parts)])


def _quota_cores(group: Path) -> int | None:
    """Cores that a group's quota is worth, rounded up; None without a quota."""
    quota, _, period = _text(group / "cpu.max").partition(" ")
    if not quota:
        quota, period = (_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    quota, period = quota.strip(), period.strip()
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return None
    return max(1, math.ceil(int(quota) / int(period)))


def _text(path: Path) -> str:
    """What a file says; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
