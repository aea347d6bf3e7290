# SPDX-License-Identifier: Apache-2.0
"""Result files of the command line; each is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from quantrt.ir.atomic import replace_file

__all__ = ["write_bytes", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file; errors are those of `write_bytes`."""
    write_bytes(path, text.encode(errors="backslashreplace"))  # a file's name may be no text


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file.

    Raises:
        DeviceError: the disk is full or the folder may not be written to.
    """
    with replace_file(path) as file:
        file.write(content)
