# SPDX-License-Identifier: Apache-2.0
"""Small tables for notebooks and terminals: HTML as text, and rich's table where rich is asked for."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["facts_html", "rich_table", "table_html"]

RIGHT = ' style="text-align:right"'


def facts_html(caption: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Two columns, a name and its value; every text is escaped, and may have several lines."""
    cells = "".join(f"<tr><th>{_escape(name)}</th><td>{_escape(text)}</td></tr>" for name, text in pairs)
    return f"<table><caption>{_escape(caption)}</caption>{cells}</table>"


def table_html(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Words in the first column, numbers to the right in the others; every text is escaped."""
    head = "".join(f"<th{RIGHT if i else ''}>{_escape(name)}</th>" for i, name in enumerate(columns))
    body = "".join(
        "<tr>"
        + "".join(f"<td{RIGHT if i else ''}>{_escape(cell)}</td>" for i, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f"<table><caption>{_escape(caption)}</caption><tr>{head}</tr>{body}</table>"


def rich_table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: Collection[int] = (0,)
) -> Table:
    """The same for a terminal, as rich prints it.

    Args:
        left: columns of words, by place; the others are right-aligned.
    """
    from rich.box import SIMPLE_HEAD  # rich takes a tenth of a second, and is needed by who prints alone
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(caption), title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, name in enumerate(columns):
        made.add_column(Text(name), justify="left" if i in left else "right", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def _escape(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")
