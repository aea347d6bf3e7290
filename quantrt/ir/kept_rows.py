# SPDX-License-Identifier: Apache-2.0
"""What one build keeps for the next, as JSON beside the timing cache: rows, by what they follow from.

{"format": FORMAT, FIELD: {digest: row, ...}}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from quantrt.ir.atomic import replace_file
from quantrt.ir.kept_file import add_to_kept, warn_damaged

__all__ = ["KeptRows", "digest_of"]

Row = TypeVar("Row")


class KeptRows(Generic[Row]):
    """One such file.

    Args:
        path: of the file; it need not be there.
        form: what its format is called; rows of another are none.
        field: what its rows are called.
        read: makes a row of its JSON; raises KeyError, TypeError or ValueError where it is none.
    """

    def __init__(self, path: Path, form: str, field: str, read: Callable[[Any], Row]) -> None:
        self.path = path
        self._form = form
        self._field = field
        self._read = read

    def load(self) -> dict[str, Row]:
        """All rows, by their digests; none where the file is damaged, which a warning says."""
        return {key: row for key, (row, _) in self._all().items()}

    def add(self, key: str, row: Any) -> None:
        """Keep a row, JSON-ready, beside those that are there; see `add_to_kept`."""
        with add_to_kept(self.path):
            rows = {**{known: text for known, (_, text) in self._all().items()}, key: row}
            data = {"format": self._form, self._field: rows}
            with replace_file(self.path) as file:
                file.write((json.dumps(data, indent=1, sort_keys=True) + "\n").encode())

    def _all(self) -> dict[str, tuple[Row, Any]]:
        """Rows as they are read, and as they are written."""
        if not self.path.exists():
            return {}
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            rows = {key: (self._read(row), row) for key, row in data[self._field].items()}
            return rows if data["format"] == self._form else {}
        except (KeyError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
            warn_damaged(self.path, repr(error))
            return {}


def digest_of(origin: object) -> str:
    """SHA-256, in hexadecimal, of what is JSON-ready."""
    return hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()
