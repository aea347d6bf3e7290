# SPDX-License-Identifier: Apache-2.0
"""A folder for files that a library wants to read or to write, gone when the block ends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quantrt.errors import DeviceError

__all__ = ["scratch_folder"]

LEAST_FREE_BYTES = 1 << 16
"""A disk with less is full: what failed there failed for that, whatever the library says."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder where the system keeps temporary files.

    Raises:
        DeviceError: the block failed and the disk of the folder is full, or there is no place for a folder.
    """
    try:
        name = tempfile.mkdtemp(prefix="quantrt-")
    except OSError as error:
        raise _no_room("there is no place for temporary files", error) from error
    folder = Path(name)
    try:
        yield folder
    except DeviceError:
        raise  # it says which file could not be written
    except Exception as error:
        if shutil.disk_usage(folder).free >= LEAST_FREE_BYTES:
            raise
        raise _no_room(f"the disk of temporary files, '{folder.parent}', is full", error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _no_room(message: str, error: Exception) -> DeviceError:
    reason = str(error).partition("\n")[0]
    return DeviceError(message, got=reason, hint="TMPDIR=/a/folder/with/room quantrt ...")
