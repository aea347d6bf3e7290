# SPDX-License-Identifier: Apache-2.0
"""Where results go is checked before any long work starts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quantrt.errors import DeviceError, UsageError
from quantrt.ir.atomic import check_apart, check_writable

__all__ = ["check_output", "check_output_folder"]


def check_output(path: Path, *suffixes: str, reads: Iterable[Path | None] = ()) -> Path:
    """The path of a file that is going to be written, with one of these suffixes.

    Args:
        reads: files that the command reads, which writing it must not replace; None for one not given.

    Raises:
        UsageError: its folder does not exist, it is a folder, its suffix says another kind of file, or it is
            one of those that are read.
        DeviceError: its folder may not be written to.
    """
    if path.suffix not in suffixes:
        expected = " or ".join(f"'{suffix}'" for suffix in suffixes)
        raise UsageError(
            f"cannot write '{path}'",
            got=f"suffix '{path.suffix}'",
            expected=expected,
            hint=f"-o '{path.with_suffix(suffixes[0])}'",
        )
    check_writable(path)
    check_apart([("-o ", path)], reads)
    return path


def check_output_folder(path: Path, *, reads: Iterable[Path | None] = ()) -> Path:
    """The path of a folder for results, made where there is none; files in it may be replaced.

    Raises:
        UsageError: it is a file or has a file's suffix, the folder that it is in does not exist, or it is one
            that is read.
        DeviceError: it cannot be made or written to.
    """
    if path.is_file() or (path.suffix and not path.is_dir()):
        raise UsageError(
            f"cannot write '{path}'",
            got="a file" if path.is_file() else f"suffix '{path.suffix}'",
            expected="'.npz', or a folder",
            hint=f"-o '{path.with_suffix('.npz')}'",
        )
    check_apart([("-o ", path)], reads)
    if not path.is_dir():
        check_writable(path)
        try:
            path.mkdir()
        except OSError as error:
            raise DeviceError(f"cannot make the folder '{path}'", got=error.strerror) from error
    check_writable(path / "file")
    return path
