# SPDX-License-Identifier: Apache-2.0
"""Values of a JSON document as their readers expect them.

What is of another type is a TypeError; the readers tell which file it came from.
"""

from __future__ import annotations

from typing import Any

__all__ = ["as_count", "as_mapping", "as_text", "as_texts", "as_truth"]


def as_text(value: Any) -> str:
    """A text."""
    if isinstance(value, str):
        return value
    raise TypeError(f"expected text, not {value!r}")


def as_texts(row: Any, length: int | None = None) -> Any:
    """A tuple of texts; `length` of them where it is given."""
    if not isinstance(row, list) or (length is not None and len(row) != length):
        raise TypeError(f"expected a list of {'' if length is None else length} texts, not {row!r}")
    return tuple(as_text(item) for item in row)


def as_truth(value: Any) -> bool:
    """True or false; a number is neither."""
    if isinstance(value, bool):
        return value
    raise TypeError(f"expected true or false, not {value!r}")


def as_count(value: Any) -> int:
    """A whole number of 0 or more."""
    if type(value) is int and value >= 0:
        return value
    raise TypeError(f"expected a number of 0 or more, not {value!r}")


def as_mapping(value: Any) -> dict[str, Any]:
    """Values by name."""
    if isinstance(value, dict):
        return value
    raise TypeError(f"expected names with values, not {value!r}")
