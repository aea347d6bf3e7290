# SPDX-License-Identifier: Apache-2.0
"""Files are written whole or not at all."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from quantrt.cli import write
from quantrt.errors import DeviceError


def test_text_and_arrays(tmp_path: Path):
    write.write_text(tmp_path / "a.json", "{}\n")
    write.write_arrays(tmp_path / "a.npz", {"x": np.arange(3), "file": np.ones(2)})
    assert (tmp_path / "a.json").read_text() == "{}\n"
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert set(archive) == {"x", "file"}, "an output may be called like numpy's own argument"
        assert archive["x"].tolist() == [0, 1, 2]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full_disk(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a.npz"
    path.write_bytes(b"old")
    monkeypatch.setattr(np.lib.format, "write_array", full_disk)
    with pytest.raises(DeviceError, match="No space left"):
        write.write_arrays(path, {"x": np.arange(3)})
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_that_is_no_text_is_escaped(tmp_path: Path):
    write.write_text(tmp_path / "page.html", f"<h1>{os.fsdecode(b'm' + bytes([255]))}.onnx</h1>")
    assert (tmp_path / "page.html").read_bytes() == rb"<h1>m\udcff.onnx</h1>"
