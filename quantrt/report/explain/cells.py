# SPDX-License-Identifier: Apache-2.0
"""Layers and figures as the cells of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["layer_title", "nodes_title", "precision_text", "share_text", "us_text"]


def us_text(value: float | None) -> str:
    """Microseconds; empty where they are not known."""
    return "" if value is None else f"{value:,.1f}"


def share_text(value: float | None) -> str:
    """A part of a whole; empty where it is not known."""
    return "" if value is None else f"{value:.1%}"


def layer_title(row: Mapping[str, Any]) -> str:
    """A layer by the first node that it computes; one without nodes by its own name."""
    return nodes_title(row["nodes"]) if row["nodes"] else str(row["name"])


def nodes_title(nodes: Sequence[str]) -> str:
    """A group of nodes by the first of them."""
    return f"{nodes[0]} + {len(nodes) - 1}" if len(nodes) > 1 else nodes[0]


def precision_text(row: Mapping[str, Any]) -> str:
    """What a layer makes, and in what it computes where that is another."""
    if row["computes_in"] in ("", row["precision"]):
        return str(row["precision"])
    return f"{row['precision']} in {row['computes_in']}"
