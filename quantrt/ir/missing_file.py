# SPDX-License-Identifier: Apache-2.0
"""What to say of a path with no file behind it."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path

from quantrt.errors import ModelError, close_match

__all__ = ["missing_file", "nearest_file"]


def missing_file(path: Path, suffix: str) -> ModelError:
    """The error, with the file beside it of that suffix whose name comes nearest, or how to look for it."""
    if path.is_symlink():
        return ModelError(
            f"cannot open '{path}': it is a link to a file that is not there",
            got=f"a link to '{path.readlink()}'",
            hint=f"`ls -lL {shlex.quote(str(path.parent))}`",
        )
    return ModelError(f"cannot open '{path}': no such file", hint=nearest_file(path, suffix))


def nearest_file(path: Path, suffix: str, besides: Collection[str] = ()) -> str:
    """The file beside a missing one whose name comes nearest, in quotes, or how to look for it.

    Args:
        besides: paths that it is not to be.
    """
    folder = path.parent
    while not folder.is_dir():
        folder = folder.parent
    # By stems: a suffix that both have makes no two names alike. A folder that cannot be listed has none.
    stems = {entry.stem: entry for entry in folder.glob(f"*{suffix}") if str(entry) not in besides}
    near = close_match(path.stem, stems) if folder == path.parent else None
    if near is not None:
        return f"'{stems[near]}'"
    return f"a path that exists: `ls {shlex.quote(str(folder))}`"
