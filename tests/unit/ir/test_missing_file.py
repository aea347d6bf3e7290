# SPDX-License-Identifier: Apache-2.0
"""A path with nothing behind it is answered with what comes near, or with how to look."""

import errno
from pathlib import Path

import pytest

from quantrt.ir.missing_file import missing_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("resnet-int8.qrt", "vit-int8.qrt", "resnet.onnx"):
        (tmp_path / name).touch()
    return tmp_path


def test_a_name_that_is_nearly_there(folder: Path):
    assert missing_file(folder / "resnet-in8.qrt", ".qrt").hint == f"'{folder / 'resnet-int8.qrt'}'"
    assert missing_file(folder / "restnet.onx", ".onnx").hint == f"'{folder / 'resnet.onnx'}'"


def test_a_link_to_nothing(folder: Path):
    (folder / "link.onnx").symlink_to("gone/model.onnx")
    error = missing_file(folder / "link.onnx", ".onnx")
    assert error.got == "a link to 'gone/model.onnx'"
    assert error.hint == f"`ls -lL {folder}`"


def test_the_suffix_alone_makes_no_names_alike(folder: Path):
    assert missing_file(folder / "nothing.qrt", ".qrt").hint == f"a path that exists: `ls {folder}`"


def test_a_folder_that_cannot_be_listed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuse)
    monkeypatch.setattr("os.listdir", refuse)
    assert missing_file(folder / "resnet-in8.qrt", ".qrt").hint == f"a path that exists: `ls {folder}`"


def test_a_folder_that_is_not_there(folder: Path):
    error = missing_file(folder / "no" / "such" / "resnet-int8.qrt", ".qrt")
    assert error.hint == f"a path that exists: `ls {folder}`"
    assert missing_file(Path("nothing at all.qrt"), ".qrt").hint == "a path that exists: `ls .`"
