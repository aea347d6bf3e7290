# SPDX-License-Identifier: Apache-2.0
"""Files are written whole or not at all."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from quantrt.errors import DeviceError

__all__ = ["write_arrays", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file.

    Raises:
        DeviceError: the disk is full or the folder may not be written to.
    """
    _write(path, lambda file: file.write(text.encode()))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a .npz file, one entry per array, uncompressed.

    Raises:
        DeviceError: as for `write_text`.
    """
    _write(path, lambda file: _save_arrays(file, arrays))


def _save_arrays(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """As `numpy.savez`, whose keyword arguments would not take an array called "file"."""
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)


def _write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            fill(file)
        temporary.replace(path)
    except OSError as error:
        raise DeviceError(f"cannot write '{path}': {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
