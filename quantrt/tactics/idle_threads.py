# SPDX-License-Identifier: Apache-2.0
"""Waiting until the threads of what ran last are asleep, so that what runs next has the cores for itself.

ONNX Runtime's threads look for work for 36 ms of processor time after a run unless told otherwise (1.31, on
an AMD EPYC of 2 cores): longer than a turn of timed runs. Timed right behind another session, ResNet-8 took
0.14 ms in FP32 there, and 0.087 behind one whose threads were asleep.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

__all__ = ["are_others_running", "wait_for_sleep"]

TASKS = Path("/proc/self/task")
"""A folder for each thread of this process, on Linux."""

LONGEST_S = 0.1
"""Of a wait: on a busy machine those 36 ms take longer, and some threads may never sleep."""

POLL_S = 0.002


def wait_for_sleep(tasks: Path = TASKS) -> None:
    """Return when no other thread of this process runs or wants to, or after LONGEST_S.

    At once where the system does not tell.
    """
    end = time.perf_counter() + LONGEST_S
    while are_others_running(tasks) and time.perf_counter() < end:
        time.sleep(POLL_S)


def are_others_running(tasks: Path = TASKS) -> bool:
    """Whether a thread of this process other than the caller's is on a core, or waits for one."""
    own = str(threading.get_native_id())
    return tasks.is_dir() and any(
        task.name != own and _state(task / "stat") == "R" for task in tasks.iterdir()
    )


def _state(path: Path) -> str:
    """The letter of a thread's state; empty where it has ended meanwhile."""
    try:
        # "PID (NAME) STATE ...": the name may hold blanks and brackets.
        fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[0] if fields else ""
