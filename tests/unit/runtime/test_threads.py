# SPDX-License-Identifier: Apache-2.0
"""A container's CPU quota is seen, and no other bound is invented."""

import os
from pathlib import Path

import pytest

from quantrt.runtime.threads import quota_threads, usable_cores


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
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    (tmp_path / "cpu.max").write_text(text)
    assert quota_threads(tmp_path / "cpu.max") == threads


def test_no_quota_file_is_no_quota(tmp_path: Path):
    assert quota_threads(tmp_path / "absent") is None


def test_usable_cores_are_at_most_those_of_the_machine():
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
