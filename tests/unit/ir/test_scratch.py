# SPDX-License-Identifier: Apache-2.0
import errno
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from quantrt.errors import DeviceError
from quantrt.ir.scratch import scratch_folder

Usage = namedtuple("Usage", "total used free")


def fill(folder: Path) -> None:
    raise RuntimeError(f"Failed to write external initializers to file: {folder}/optimized.bin")


def test_the_folder_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch_folder() as folder:
        (folder / "a").write_bytes(b"x")
        assert list(tmp_path.iterdir()) == [folder]
    assert not list(tmp_path.iterdir())


def test_what_fails_for_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100, 100, 0))
    with pytest.raises(DeviceError, match="disk of temporary files") as caught, scratch_folder() as folder:
        fill(folder)
    assert "optimized.bin" in caught.value.got and "TMPDIR=" in caught.value.hint
    assert not list(tmp_path.iterdir())
    own = DeviceError("cannot write 'x.onnx'")
    with pytest.raises(DeviceError) as caught, scratch_folder():
        raise own
    assert caught.value is own, "it names its file already"


def test_other_failures_are_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="Failed to write"), scratch_folder() as folder:
        fill(folder)


def test_no_place_for_a_folder(monkeypatch: pytest.MonkeyPatch):
    def refuse(prefix: str) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(DeviceError, match="no place for temporary files"), scratch_folder():
        pass
