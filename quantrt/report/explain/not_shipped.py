# SPDX-License-Identifier: Apache-2.0
"""Why another precision was not shipped: what its candidate took where this engine is faster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quantrt.plan.plan import Plan
from quantrt.report.built.candidate_times import has_layers, together_us, told_layers
from quantrt.report.built.shipped_row import shipped_row
from quantrt.report.engine_layers.graph import align_names

__all__ = ["describe_not_shipped"]

SLOWEST = 5
"""Groups of layers that are named of each candidate."""


def describe_not_shipped(plan: Plan) -> list[dict[str, Any]]:
    """One row for every candidate in another precision of which the build's report tells the layers.

    Keys: name, reason, ratio (of its latency to that of what was shipped, or null), conversions,
    conversions_us and shipped_conversions_us, and "slower": {"nodes", "more_us"} of the layers that it loses
    most at; nodes that one of the two fuses and the other does not are together.
    """
    shipped = shipped_row(plan.report)
    if shipped is None or not has_layers(shipped):
        return []
    names = [layer.name for layer in plan.layers]
    return [
        _row(row, shipped, names)
        for row in plan.report["candidates"]
        if has_layers(row) and row["precision"] != shipped["precision"]
    ]


def _row(row: Mapping[str, Any], shipped: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    own, other = row["layer_times"], shipped["layer_times"]
    more = sorted(_differences(row, shipped, names), key=lambda pair: -pair[1])
    here, there = row.get("latency"), shipped.get("latency")
    return {
        "name": row["name"],
        "status": row["status"],
        "reason": row["reason"],
        "ratio": here["median_ms"] / there["median_ms"] if here and there else None,
        "conversions": own["conversions"],
        "conversions_us": own["conversions_us"],
        "shipped_conversions_us": other["conversions_us"],
        "nodes_us": sum(time_us or 0.0 for time_us, _ in own["layers"]),
        "shipped_nodes_us": sum(time_us or 0.0 for time_us, _ in other["layers"]),
        "slower": [{"nodes": list(nodes), "more_us": us} for nodes, us in more[:SLOWEST] if us > 0],
    }


def _differences(
    row: Mapping[str, Any], shipped: Mapping[str, Any], names: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], float]]:
    """Microseconds more of everything that both tell."""
    own, other = told_layers(row, names), told_layers(shipped, names)
    for group in align_names([nodes for _, nodes in own], [nodes for _, nodes in other]):
        ours = together_us([own[place][0] for place in group.left])
        theirs = together_us([other[place][0] for place in group.right])
        if ours is not None and theirs is not None:
            nodes = dict.fromkeys(name for place in group.left for name in own[place][1])
            yield tuple(nodes), round(ours - theirs, 1)
