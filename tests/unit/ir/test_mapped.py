# SPDX-License-Identifier: Apache-2.0
"""Arrays of a mapped file, taken out of it."""

from pathlib import Path

import numpy as np
import pytest

from quantrt.ir.mapped import in_memory, map_file


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
def test_what_is_in_memory_does_not_depend_on_the_file(dtype: type, tmp_path: Path):
    path, content = tmp_path / "data", np.arange(3 * 5000).astype(dtype).reshape(3, 5000)
    path.write_bytes(bytes(8) + content.tobytes())
    mapped = np.frombuffer(map_file(path), np.uint8)[8:].view(dtype).reshape(3, 5000)
    own = in_memory(mapped)
    with path.open("r+b") as file:
        file.write(b"\xff" * 100)
    assert not np.array_equal(mapped, content), "what is mapped is the file's"
    with path.open("r+b") as file:
        file.truncate(0)
    np.testing.assert_array_equal(own, content)
    assert own.dtype == dtype and own.ctypes.data % 64 == 0 and not own.flags.writeable


def test_what_is_in_memory_stays_where_it_is():
    array = np.arange(5)
    assert in_memory(array) is array and in_memory(array[1:]).base is array


def test_nothing_of_a_mapped_file_is_nothing(tmp_path: Path):
    path = tmp_path / "data"
    path.write_bytes(b"1234")
    assert in_memory(np.frombuffer(map_file(path), np.uint8)[4:]).size == 0
