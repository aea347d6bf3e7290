# SPDX-License-Identifier: Apache-2.0
"""Files that one build keeps for the next ones: they spare time, and no build ends because of them.

Builds that share such a file may run at once. Each reads it again, adds what it found and replaces it, alone
in the folder meanwhile. The lock is the folder's own: it leaves no file behind, and the system frees it when
a process dies.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from quantrt.errors import DataError, DeviceError
from quantrt.ir.atomic import check_writable

__all__ = ["add_to_kept", "check_kept", "warn_damaged"]

log = logging.getLogger(__name__)

WAIT_S = 30.0
"""For another build: it holds the lock while it reads and writes one file, unless it was stopped there."""

RETRY_S = 0.02


def check_kept(path: str | None) -> None:
    """Fail before long work where nothing can be kept under this name; warn where its folder is read-only.

    Raises:
        UsageError: the path is a folder, or in one that does not exist.
    """
    try:
        if path is not None:
            check_writable(Path(path))
    except DeviceError as error:
        log.warning("%s: what is in it is used, and nothing is added", error.message)


@contextmanager
def add_to_kept(path: Path) -> Iterator[None]:
    """A block that reads a file again, adds to it and replaces it, with no other such block in its folder.

    Where the file cannot be written, or turns out to be another's, a warning says so and nothing is kept.
    """
    try:
        with _alone_in(Path(os.path.realpath(path)).parent):
            yield
    except (DataError, DeviceError) as error:
        log.warning("%s%s: later builds do without", error.message, f" ({error.got})" if error.got else "")


def warn_damaged(path: Path, reason: object) -> None:
    """Say that a file is not used, and made anew."""
    log.warning("'%s' is damaged, not used, and made anew: %s", path, str(reason)[:200])


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Alone among those that ask for it; where the file system has no locks, or none is had, without."""
    with ExitStack() as stack:
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, handle)  # and the lock with it
            _lock(handle)
        except OSError as error:
            reason = f"no lock on '{folder}' ({error.strerror})"
            log.warning("%s: of what two builds add at once, one part may be lost", reason)
        yield


def _lock(handle: int) -> None:
    """Lock what is open.

    Raises:
        OSError: the file system has no locks, or another process holds this one for longer than it may.
    """
    end_s = time.monotonic() + WAIT_S
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end_s:
                raise
            time.sleep(RETRY_S)
