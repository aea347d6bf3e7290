# SPDX-License-Identifier: Apache-2.0
import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quantrt.errors import DeviceError
from quantrt.ir.atomic import replace_file


@pytest.mark.parametrize(("code", "hint"), [(errno.ENOSPC, "df -h"), (errno.EFBIG, "df -h"), (errno.EIO, "")])
def test_a_write_that_fails_leaves_the_old_file_and_says_why(code: int, hint: str, tmp_path: Path):
    path = tmp_path / "a.onnx"
    path.write_bytes(b"old")
    with pytest.raises(DeviceError, match="cannot write") as caught, replace_file(path) as file:
        file.write(b"new")
        raise OSError(code, "it failed")
    assert [item.name for item in tmp_path.iterdir()] == ["a.onnx"] and path.read_bytes() == b"old"
    assert (caught.value.hint or "").startswith(f"`{hint} '{tmp_path}'`" if hint else "")
    assert bool(caught.value.hint) == bool(hint)


def test_a_folder_that_is_missing_or_in_the_files_place_is_told_with_what_to_do(tmp_path: Path):
    for path, hint in (
        (tmp_path / "new" / "a.qrt", f"`mkdir -p '{tmp_path / 'new'}'`"),
        (tmp_path, f"the name of a file in it: '{tmp_path}/NAME'"),
    ):
        with pytest.raises(DeviceError, match="cannot write") as caught, replace_file(path):
            pass
        assert caught.value.hint == hint


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(tmp_path: Path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a.onnx", tmp_path / "latest.onnx"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with replace_file(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert [item.name for item in target.parent.iterdir()] == ["a.onnx"]


def test_a_pipe_or_a_device_is_written_to_and_stays(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        with replace_file(pipe) as file:
            file.write(b"nww")
            file.seek(1)
            file.write(b"e")
        assert read.result() == b"new"
    assert pipe.is_fifo()


def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path):
    path = tmp_path / ("ä" * 125 + ".onnx")
    with replace_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
