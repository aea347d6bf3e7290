# SPDX-License-Identifier: Apache-2.0
"""Arrays that lie in a file, read without filling the memory with it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np

__all__ = ["in_memory", "map_file", "release_pages", "stream_bytes"]

_CHUNK_BYTES = 16 << 20
_ALIGNMENT_BYTES = 64


def map_file(path: Path) -> mmap.mmap:
    """The file's bytes as read-only memory that the system fills on use; one descriptor per call.

    Raises:
        OSError: the file cannot be opened.
        ValueError: the file is empty.
    """
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def stream_bytes(array: np.ndarray) -> Iterator[memoryview]:
    """The array's bytes in row-major order, in chunks.

    Of an array that is mapped, the system takes each chunk's memory back when the next is asked for, so
    that walking over weights of many GB does not keep them resident.
    """
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    mapping = _mapping_of(flat)
    for start in range(0, flat.size, _CHUNK_BYTES):
        chunk = flat[start : start + _CHUNK_BYTES]
        yield chunk.data
        if mapping is not None:
            _release(mapping, chunk)


def release_pages(array: np.ndarray) -> None:
    """Let the system take back the memory of a mapped array; it is read from the file when next used."""
    mapping = _mapping_of(array)
    if mapping is not None and array.nbytes:
        _release(mapping, array.reshape(-1).view(np.uint8))


def in_memory(array: np.ndarray) -> np.ndarray:
    """The array, copied if it lies in a mapped file: what is written into the file is nothing to it then.

    The bytes under a mapping are the file's. Where the file is overwritten in place they are others, and
    where it is shorter meanwhile the system ends the process that reads them.

    Returns:
        read-only, aligned to a cache line.
    """
    if _mapping_of(array) is None:
        return array
    room = np.empty(array.nbytes + _ALIGNMENT_BYTES, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT_BYTES
    own = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    own[...] = array
    own.flags.writeable = False
    release_pages(array)
    return own


def _mapping_of(array: np.ndarray) -> mmap.mmap | None:
    base: object = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) else None


def _release(mapping: mmap.mmap, chunk: np.ndarray) -> None:
    """Drop the pages that lie wholly in `chunk`; they are read again from the file when next used."""
    if not hasattr(mapping, "madvise"):  # not on every system
        return
    first = chunk.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    start = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (first + chunk.size) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start:
        mapping.madvise(mmap.MADV_DONTNEED, start, end - start)
