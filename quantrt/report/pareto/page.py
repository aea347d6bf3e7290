# SPDX-License-Identifier: Apache-2.0
"""A front of time against noise as one HTML file, its picture and its table; it loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from quantrt.report.pareto.chart import draw_front, front_title

__all__ = ["front_page"]

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<title>{title}</title>
<style>
body {{ font: 14px/1.5 sans-serif; margin: 2em auto; max-width: 44em; color: #111827; }}
table {{ border-collapse: collapse; margin-top: 1em; }}
th, td {{ padding: 0.2em 0.8em; text-align: right; border-bottom: 1px solid #e5e7eb; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{path}</p>
{picture}
<table>
{rows}
</table>
</body>
</html>
"""


def front_page(data: Mapping[str, Any], columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The page's text.

    Args:
        data: of `quantrt.report.tune.describe_front`.
        columns, rows: of the table that is shown of it.
    """
    return PAGE.format(
        title=escape(front_title(data)),
        path=escape(str(data["path"])),
        picture=draw_front(data),
        rows="\n".join([_row("th", columns), *(_row("td", row) for row in rows)]),
    )


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
