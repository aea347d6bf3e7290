# SPDX-License-Identifier: Apache-2.0
"""Why another precision was not shipped: what its candidate took where this engine is faster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quantrt.plan.plan import Plan

__all__ = ["describe_not_shipped"]

SLOWEST = 5
"""Nodes that are named of each candidate."""


def describe_not_shipped(plan: Plan) -> list[dict[str, Any]]:
    """One row for every candidate in another precision of which the build's report tells the layers.

    Keys: name, reason, ratio (of its latency to that of what was shipped, or null), conversions,
    conversions_us and shipped_conversions_us, and "slower": [node, microseconds more] of the nodes that it
    loses most at.
    """
    report = plan.report
    rows = {row["name"]: row for row in report.get("candidates", ())}
    shipped = rows.get(report.get("verdict", {}).get("shipped", ""))
    if shipped is None or not shipped.get("layer_times"):
        return []
    names = [layer.name for layer in plan.layers]
    return [
        _row(row, shipped, names)
        for row in rows.values()
        if row.get("layer_times") and row["precision"] != shipped["precision"]
    ]


def _row(row: Mapping[str, Any], shipped: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    own, other = row["layer_times"], shipped["layer_times"]
    more = sorted(_differences(own, other, names), key=lambda pair: -pair[1])
    here, there = row.get("latency"), shipped.get("latency")
    return {
        "name": row["name"],
        "status": row["status"],
        "reason": row["reason"],
        "ratio": here["median_ms"] / there["median_ms"] if here and there else None,
        "conversions": own["conversions"],
        "conversions_us": own["conversions_us"],
        "shipped_conversions_us": other["conversions_us"],
        "nodes_us": sum(time_us or 0.0 for time_us in own["node_us"]),
        "shipped_nodes_us": sum(time_us or 0.0 for time_us in other["node_us"]),
        "slower": [[name, time_us] for name, time_us in more[:SLOWEST] if time_us > 0],
    }


def _differences(
    own: Mapping[str, Any], other: Mapping[str, Any], names: Sequence[str]
) -> Iterator[tuple[str, float]]:
    """Microseconds more of every node that both tell."""
    for name, ours, theirs in zip(names, own["node_us"], other["node_us"], strict=True):
        if ours is not None and theirs is not None:
            yield name, round(ours - theirs, 1)
