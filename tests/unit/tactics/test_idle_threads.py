# SPDX-License-Identifier: Apache-2.0
"""Waiting for threads of what ran last."""

import threading
import time
from pathlib import Path

import pytest

from quantrt.tactics import idle_threads
from quantrt.tactics.idle_threads import LONGEST_S, are_others_running, wait_for_sleep

ON_LINUX = pytest.mark.skipif(not idle_threads.TASKS.is_dir(), reason="the system does not tell of threads")


def tasks(folder: Path, *states: str) -> Path:
    """A folder like that of a process, the caller's own thread running in it."""
    numbers = {str(threading.get_native_id()): "R", **{str(-1 - n): state for n, state in enumerate(states)}}
    for number, state in numbers.items():
        (folder / number).mkdir()
        (folder / number / "stat").write_text(f"{number} (a (bad) name R) {state} 1 2 3", encoding="utf-8")
    return folder


@pytest.mark.parametrize(("states", "are_running"), [("", False), ("SSD", False), ("SRS", True)])
def test_threads_that_run_or_want_to_are_told(tmp_path: Path, states: str, are_running: bool):
    assert are_others_running(tasks(tmp_path, *states)) is are_running


def test_a_thread_that_ended_meanwhile_does_not_run(tmp_path: Path):
    folder = tasks(tmp_path, "S")
    (folder / "-7").mkdir()
    assert not are_others_running(folder)


def test_nothing_is_waited_for_where_the_system_does_not_tell(tmp_path: Path):
    assert not are_others_running(tmp_path / "absent")


def test_a_wait_is_bounded(tmp_path: Path):
    began = time.perf_counter()
    wait_for_sleep(tasks(tmp_path, "R"))
    assert time.perf_counter() - began >= LONGEST_S


def test_a_wait_ends_when_the_thread_sleeps(tmp_path: Path):
    folder = tasks(tmp_path, "R")
    timer = threading.Timer(0.02, lambda: (folder / "-1" / "stat").write_text("-1 (x) S 1"))
    timer.start()
    wait_for_sleep(folder)
    assert timer.finished.is_set()
    timer.join()


@ON_LINUX
def test_a_busy_thread_of_this_process_is_seen():
    done, begun = threading.Event(), threading.Event()

    def spin() -> None:
        begun.set()
        while not done.is_set():
            sum(range(1000))

    thread = threading.Thread(target=spin)
    thread.start()
    begun.wait()
    try:
        seen = [are_others_running() for _ in range(20)]
    finally:
        done.set()
        thread.join()
    assert any(seen)
