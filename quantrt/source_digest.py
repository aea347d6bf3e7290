# SPDX-License-Identifier: Apache-2.0
"""A digest of the code that kept results depend on, so that a change of it makes them anew."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["source_digest"]

PACKAGE = Path(__file__).parent
DIGITS = 16


def source_digest(folders: Iterable[str]) -> str:
    """Hexadecimal digest of every Python file below some folders of the package: names and bytes."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:DIGITS]
