# SPDX-License-Identifier: Apache-2.0
"""What was found to be trouble before a build, as JSON-ready data and as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from quantrt.report.tables import facts, heading, show, table
from quantrt.trouble.finding import TROUBLE, Finding

__all__ = ["describe_trouble", "show_trouble"]

NAMED = 2
"""Nodes of a finding that are named."""


def describe_trouble(findings: Sequence[Finding], *, target: str, seen: str) -> dict[str, Any]:
    """JSON-ready data.

    Args:
        target: whose rules were applied.
        seen: what was known of values, in words.
    """
    return {"target": target, "seen": seen, "findings": [dataclasses.asdict(one) for one in findings]}


def show_trouble(data: Mapping[str, Any]) -> None:
    """A table of the findings, and what each kind does and what helps."""
    rows = data["findings"]
    count = sum(row["level"] == TROUBLE for row in rows)
    say = "no trouble" if not count else f"{count} trouble{'s' * (count > 1)}"
    show("", heading(f"{say} predicted from {data['seen']}, by the rules for {data['target']}"))
    if not rows:
        return
    cells = [(row["kind"], row["level"], _nodes_text(row["nodes"]), row["figure"]) for row in rows]
    columns = ("kind", "level", "layers", "what shows it")
    show("", table(columns, cells, left=columns[:2], fold=columns[2:]))
    told: set[tuple[str, str]] = set()
    for row in rows:
        if (row["kind"], row["effect"]) not in told:
            told.add((row["kind"], row["effect"]))
            show("", facts((("why", f"{row['kind']}: {row['effect']}"), ("do", row["advice"]))))


def _nodes_text(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return ", ".join(nodes[:NAMED]) + more
