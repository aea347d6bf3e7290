# SPDX-License-Identifier: Apache-2.0
"""Waiting until the threads of what ran last are asleep, so that what runs next has the cores for itself.

ONNX Runtime's threads look for work after a run for longer than a turn of timed runs unless told otherwise
(1.31): a session timed right behind another would share the cores with them.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

__all__ = ["are_others_running", "wait_for_sleep"]

TASKS = Path("/proc/self/task")
"""A folder for each thread of this process, on Linux."""

LONGEST_S = 0.1
"""Of a wait: on a busy machine threads look for work longer, and some may never sleep."""

POLL_S = 0.002

STAT_BYTES = 512
"""Of such a file: more than its number, name and state."""


def wait_for_sleep(tasks: Path = TASKS) -> None:
    """Return when no other thread of this process runs or wants to, or after LONGEST_S.

    At once where the system does not tell.
    """
    end = time.perf_counter() + LONGEST_S
    while are_others_running(tasks) and time.perf_counter() < end:
        time.sleep(POLL_S)


def are_others_running(tasks: Path = TASKS) -> bool:
    """Whether a thread of this process other than the caller's is on a core, or waits for one.

    A turn asks once or twice, and a search has a hundred turns: so by the calls of the system, without paths
    and decoded text.
    """
    if not tasks.is_dir():
        return False
    own = str(threading.get_native_id())
    with os.scandir(tasks) as found:
        return any(task.name != own and _state(f"{task.path}/stat") == b"R" for task in found)


def _state(path: str) -> bytes:
    """The letter of a thread's state; empty where it has ended meanwhile."""
    try:
        number = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        # "PID (NAME) STATE ...": the name may hold blanks and brackets.
        fields = os.read(number, STAT_BYTES).rpartition(b")")[2].split(maxsplit=1)
    except OSError:
        return b""
    finally:
        os.close(number)
    return fields[0] if fields else b""
