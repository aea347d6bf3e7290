# SPDX-License-Identifier: Apache-2.0
"""An executable called trtexec that runs `quantrt trtexec` with this Python."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import quantrt
from quantrt.errors import DeviceError, UsageError
from quantrt.ir.atomic import replace_file

__all__ = ["MARK", "install_shim"]

MARK = "# Written by `quantrt trtexec --install-shim`."
MODE = 0o755


def install_shim(folder: Path, *, force: bool) -> Path:
    """Write `trtexec` into the folder, wholly or not at all, and return its path.

    Args:
        force: replace a trtexec that is another program.

    Raises:
        UsageError: the folder does not exist, or another trtexec is in it.
        DeviceError: the folder may not be written to.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder '{folder}'", hint=f"mkdir -p '{folder}'")
    path = folder / "trtexec"
    if path.is_dir():
        raise UsageError(f"cannot write '{path}': it is a folder")
    if not force and path.is_symlink():
        raise UsageError(f"'{path}' is a link to another program", hint="--force to replace the link")
    if not force and path.exists() and not _is_own(path):
        raise UsageError(f"'{path}' is another program", hint="another folder, or --force to replace it")
    with replace_file(path, follow_link=False) as file:
        file.write(_script().encode())
        os.fchmod(file.fileno(), MODE)
    return path


def _is_own(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return MARK.encode() in file.read(len(MARK) + 100)
    except OSError as error:
        raise DeviceError(f"cannot read '{path}'", got=error.strerror) from error


def _script() -> str:
    """A shell script; the package is found where it is now, after everything else that Python finds."""
    where = str(Path(quantrt.__file__).resolve().parents[1])
    code = (
        f"import sys; sys.path.append({where!r}); "
        "from quantrt.cli.main import entry_point; sys.exit(entry_point())"
    )
    return f'#!/bin/sh\n{MARK}\nexec {shlex.quote(sys.executable)} -P -c {shlex.quote(code)} trtexec "$@"\n'
