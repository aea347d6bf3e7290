# SPDX-License-Identifier: Apache-2.0
"""What a library prints on stdout goes to stderr: HiGHS has a line that no option turns off (scipy 1.17)."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["prints_on_stderr"]

STDOUT, STDERR = 1, 2


@contextmanager
def prints_on_stderr() -> Iterator[None]:
    """For the time of a `with` block, file descriptor 1 is what 2 is; where either is closed, as they are."""
    try:
        os.fstat(STDERR)
        kept = os.dup(STDOUT)
    except OSError:
        yield
        return
    _flush()
    os.dup2(STDERR, STDOUT)
    try:
        yield
    finally:
        _flush()  # what C code has printed is still in its buffer
        os.dup2(kept, STDOUT)
        os.close(kept)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
