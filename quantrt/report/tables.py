# SPDX-License-Identifier: Apache-2.0
"""Tables on stdout: at most 100 columns, readable in a pipe, without colour there."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["MAX_COLUMNS", "facts", "heading", "new_console", "show", "table", "verdict"]

MAX_COLUMNS = 100


def new_console() -> Console:
    """A console on the present stdout, as wide as the terminal but never wider than MAX_COLUMNS."""
    console = Console(file=sys.stdout, highlight=False, soft_wrap=False)
    width = min(console.width, MAX_COLUMNS) if sys.stdout.isatty() else MAX_COLUMNS
    console.width = width
    return console


def show(*parts: RenderableType) -> None:
    """Print on stdout; a pipe gets no trailing spaces."""
    console = new_console()
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    for line in capture.get().splitlines():
        print(line if sys.stdout.isatty() else line.rstrip())


def heading(text: str) -> Text:
    """A line above a table."""
    return Text(text, style="bold")


def verdict(passed: bool, text: str) -> Text:
    """The last line of a check: PASSED or FAILED, and why."""
    word = Text("PASSED", style="bold green") if passed else Text("FAILED", style="bold red")
    return word.append(f" {text}", style="default not bold")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Collection[str] = (),
    fold: Collection[str] = (),
) -> Table:
    """A table of text cells; columns are right-aligned, as for numbers.

    Args:
        columns: headers.
        rows: one text per column.
        left: columns of words.
        fold: columns of words that are wrapped when the table is too wide.
    """
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name in columns:
        is_foldable = name in fold
        made.add_column(
            name,
            justify="left" if name in left or is_foldable else "right",
            no_wrap=not is_foldable,
            overflow="fold" if is_foldable else "ellipsis",
            min_width=8 if is_foldable else None,
        )
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """Two columns: a name and its value, long values wrapped."""
    made = Table.grid(padding=(0, 2))
    made.add_column(no_wrap=True, style="dim")
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(Text(name), Text(value))
    return made
