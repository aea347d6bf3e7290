# SPDX-License-Identifier: Apache-2.0
"""An output path that cannot work is refused before any work."""

import os
from pathlib import Path

import pytest

from quantrt.cli.options.paths import check_output
from quantrt.errors import DeviceError, UsageError


def test_a_good_path_is_returned(tmp_path: Path):
    assert check_output(tmp_path / "a.qrt", ".qrt") == tmp_path / "a.qrt"


def test_an_existing_file_may_be_replaced(tmp_path: Path):
    (tmp_path / "a.qrt").write_bytes(b"old")
    assert check_output(tmp_path / "a.qrt", ".qrt")


@pytest.mark.parametrize("name", ["a.onnx", "a", "missing/a.qrt"])
def test_wrong_suffix_or_folder(tmp_path: Path, name: str):
    with pytest.raises(UsageError, match=r"cannot write"):
        check_output(tmp_path / name, ".qrt")


def test_a_folder_is_no_file(tmp_path: Path):
    (tmp_path / "a.qrt").mkdir()
    with pytest.raises(UsageError, match="it is a folder"):
        check_output(tmp_path / "a.qrt", ".qrt")


def test_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(DeviceError, match="read-only"):
        check_output(tmp_path / "a.qrt", ".qrt")


def test_what_is_read_is_not_replaced(tmp_path: Path):
    (tmp_path / "a.onnx").write_bytes(b"model")
    (tmp_path / "link.onnx").symlink_to(tmp_path / "a.onnx")
    for read in (tmp_path / "a.onnx", tmp_path / "link.onnx"):
        with pytest.raises(UsageError, match="in place of") as caught:
            check_output(tmp_path / "a.onnx", ".onnx", reads=(None, read))
        assert "a.new.onnx" in (caught.value.hint or "")
    assert check_output(tmp_path / "b.onnx", ".onnx", reads=(None, tmp_path / "a.onnx"))
