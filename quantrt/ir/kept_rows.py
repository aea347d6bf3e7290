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

from quantrt.errors import DataError
from quantrt.ir.atomic import replace_file

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
        """All rows, by their digests.

        Raises:
            DataError: the file is damaged; names it.
        """
        return {key: row for key, (row, _) in self._all().items()}

    def add(self, key: str, row: Any) -> None:
        """Keep a row, JSON-ready, beside those that are there.

        Raises:
            DataError: the file is damaged; names it.
            DeviceError: it cannot be written.
        """
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
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            hint = f"`rm '{self.path}'`: it is made anew"
            raise DataError(f"cannot read '{self.path}'", got=repr(error)[:200], hint=hint) from error


def digest_of(origin: object) -> str:
    """SHA-256, in hexadecimal, of what is JSON-ready."""
    return hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()
