# SPDX-License-Identifier: Apache-2.0
"""Where results go is checked before any long work starts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from quantrt.errors import UsageError
from quantrt.ir.atomic import check_apart, check_writable

__all__ = ["check_output"]


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
