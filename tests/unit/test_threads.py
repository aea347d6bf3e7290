# SPDX-License-Identifier: Apache-2.0
"""A container's CPU quota and a process's cores are seen, and no other bound is invented."""

import os
from pathlib import Path

import pytest

from quantrt.threads import bounded_threads, usable_cores


def give_cores(monkeypatch: pytest.MonkeyPatch, *, allowed: int, machine: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(allowed)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: machine)


@pytest.mark.parametrize(
    ("text", "threads"),
    [
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("20000 100000\n", 1),
        ("6400000 100000\n", None),
        ("max 100000\n", None),
        ("rubbish", None),
        ("100000 0\n", None),
        ("", None),
    ],
)
def test_quota(text: str, threads: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    give_cores(monkeypatch, allowed=64, machine=64)
    (tmp_path / "cpu.max").write_text(text)
    assert bounded_threads(tmp_path / "cpu.max") == threads


def test_no_quota_file_is_no_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    give_cores(monkeypatch, allowed=64, machine=64)
    assert bounded_threads(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("text", "threads"), [("max 100000\n", 4), ("200000 100000\n", 2), ("600000 100000\n", 4)]
)
def test_the_least_of_affinity_and_quota(
    text: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    give_cores(monkeypatch, allowed=4, machine=64)
    (tmp_path / "cpu.max").write_text(text)
    assert bounded_threads(tmp_path / "cpu.max") == threads


def test_usable_cores_are_at_most_those_of_the_machine():
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
