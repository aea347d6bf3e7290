# SPDX-License-Identifier: Apache-2.0
"""What pages of results are made of: tables, numbers, and notes to rows that were measured differently."""

__all__ = ["failures", "number", "row_notes", "table"]

from collections.abc import Mapping, Sequence
from typing import Any


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def number(value: float | None, digits: int) -> str:
    """With so many decimals; nothing for what is unknown."""
    return "" if value is None else f"{value:.{digits}f}"


def row_notes(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for every `note` that rows have, with their names where it is not true of all."""
    names: dict[str, list[str]] = {}
    for name, row in rows.items():
        if "note" in row:
            names.setdefault(row["note"], []).append(name)
    return "".join(
        f"\n{'All rows' if len(of) == len(rows) else ', '.join(of)}: {note}.\n" for note, of in names.items()
    )


def failures(models: Mapping[str, Mapping[str, Any]]) -> str:
    """Why contenders failed, a line each.

    Args:
        models: by name, their `contenders` by name, of which those that failed have an `error`.
    """
    return "".join(
        f"\n{name}, {contender}: `{row['error']}`\n"
        for name, model in models.items()
        for contender, row in model["contenders"].items()
        if "error" in row
    )
