# SPDX-License-Identifier: Apache-2.0
"""Write a file wholly or not at all, where it can be written."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from quantrt.errors import DeviceError, UsageError

__all__ = ["check_apart", "check_writable", "replace_file"]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def replace_file(path: Path, *, follow_link: bool = True) -> Iterator[BinaryIO]:
    """A file to write into that becomes `path` when the block ends, and vanishes if it fails.

    It has another name in the same folder until then, so a reader sees the old file or the whole new one,
    and memory mapped from the old one stays valid. A link stays one: what it leads to is replaced. A device
    or a pipe, such as /dev/stdout, stays where it is and gets what was written when the block ends.

    Args:
        follow_link: without it a link is replaced itself, and what it leads to stays as it is.

    Raises:
        DeviceError: the folder is missing or cannot be written to, or the disk is full.
    """
    try:
        if follow_link and path.exists() and not path.is_file():
            with tempfile.NamedTemporaryFile(prefix="quantrt-") as whole:
                yield cast("BinaryIO", whole)
                whole.seek(0)
                with path.open("wb") as stream:
                    shutil.copyfileobj(whole, stream)
            return
        place = Path(os.path.realpath(path)) if follow_link else path
        temporary = place.with_name(f".quantrt-{os.urandom(8).hex()}.tmp")  # its name may be as long as any
        try:
            with temporary.open("xb") as file:
                yield file
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise DeviceError(f"cannot write '{path}'", got=reason, hint=_hint(path, error.errno)) from error


def _hint(path: Path, number: int | None) -> str | None:
    """What to try where a file cannot be written; None where the reason says all there is."""
    if number in _NO_ROOM:
        return f"`df -h '{path.parent}'`, and another -o"
    if number == errno.EISDIR:
        return f"the name of a file in it: '{path}/NAME'"
    return f"`mkdir -p '{path.parent}'`" if number == errno.ENOENT else None


def check_apart(written: Iterable[tuple[str, Path | None]], read: Iterable[Path | None]) -> None:
    """Fail unless every file that is going to be written is another than those before it and those read.

    Args:
        written: the option that names each, as far as its value; None for a file that was not asked for.
        read: None likewise.

    Raises:
        UsageError: one is not.
    """
    taken = {path.resolve() for path in read if path is not None}
    for flag, path in written:
        if path is None:
            continue
        if path.resolve() in taken:
            other = path.with_name(f"{path.stem}.new{path.suffix}")
            raise UsageError(
                f"cannot write '{path}' in place of what is read, or written too", hint=f"{flag}'{other}'"
            )
        taken.add(path.resolve())


def check_writable(path: Path) -> None:
    """Fail before long work when its result cannot be written.

    Raises:
        UsageError: the path is a folder, or in one that does not exist.
        DeviceError: its folder may not be written to.
    """
    if path.is_dir():
        raise UsageError(
            f"cannot write '{path}': it is a folder", hint=f"the name of a file in it: '{path}/NAME'"
        )
    if not path.parent.is_dir():
        raise UsageError(
            f"cannot write '{path}': its folder does not exist", hint=f"mkdir -p '{path.parent}'"
        )
    if not os.access(path.parent, os.W_OK):
        raise DeviceError(f"cannot write '{path}': its folder is read-only for this user")
