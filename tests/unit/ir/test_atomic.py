# SPDX-License-Identifier: Apache-2.0
import errno
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
