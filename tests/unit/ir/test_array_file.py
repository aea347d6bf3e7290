# SPDX-License-Identifier: Apache-2.0
"""Files are written whole or not at all."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from quantrt.errors import DeviceError
from quantrt.ir.array_file import write_arrays


def test_an_output_may_be_called_like_an_argument_of_numpys(tmp_path: Path):
    write_arrays(tmp_path / "a.npz", {"x": np.arange(3), "file": np.ones(2)})
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert set(archive) == {"x", "file"}
        assert archive["x"].tolist() == [0, 1, 2]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full_disk(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a.npz"
    path.write_bytes(b"old")
    monkeypatch.setattr(np.lib.format, "write_array", full_disk)
    with pytest.raises(DeviceError, match="No space left"):
        write_arrays(path, {"x": np.arange(3)})
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_text_is_read_back_without_pickle(tmp_path: Path):
    text = np.array([["a", "µm"], ["", "long word"]], object)
    write_arrays(tmp_path / "text.npz", {"t": text, "none": text[:0]})
    found = np.load(tmp_path / "text.npz", allow_pickle=False)
    assert found["t"].tolist() == text.tolist()
    assert found["none"].shape == (0, 2)
