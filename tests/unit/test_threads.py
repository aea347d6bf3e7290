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
    assert bounded_threads(tmp_path, tmp_path / "none") == threads


def test_no_quota_file_is_no_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    give_cores(monkeypatch, allowed=64, machine=64)
    assert bounded_threads(tmp_path, tmp_path / "none") is None


@pytest.mark.parametrize(
    ("text", "threads"), [("max 100000\n", 4), ("200000 100000\n", 2), ("600000 100000\n", 4)]
)
def test_the_least_of_affinity_and_quota(
    text: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    give_cores(monkeypatch, allowed=4, machine=64)
    (tmp_path / "cpu.max").write_text(text)
    assert bounded_threads(tmp_path, tmp_path / "none") == threads


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/jobs/mine\n", {"jobs/mine/cpu.max": "300000 100000"}, 3),
        ("0::/jobs/mine\n", {"jobs/mine/cpu.max": "max 100000", "jobs/cpu.max": "50000 100000"}, 1),
        ("0::/jobs/mine\n", {"other/cpu.max": "50000 100000"}, 64),
        ("3:memory:/a\n1:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "200000\n"}, 2),
        ("2:cpu,cpuacct:/of/the/host\n", {"cpu,cpuacct/cpu.cfs_quota_us": "400000\n"}, 4),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n"}, 64),
        ("4:cpuset:/a\n", {"cpuset/a/cpu.max": "100000 100000"}, 64),
    ],
)
def test_quotas_of_the_groups_of_this_process(
    groups: str, files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of both versions of control groups; of a service they are in its own folder, not at the root."""
    give_cores(monkeypatch, allowed=64, machine=64)
    (tmp_path / "own").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if name.endswith("quota_us"):
            file.with_name("cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(tmp_path / "cgroup", tmp_path / "own") == cores


def test_usable_cores_are_at_most_those_of_the_machine():
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
