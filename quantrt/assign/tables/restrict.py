# SPDX-License-Identifier: Apache-2.0
"""Tables in which some regions have to be float, as a user wants it."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from quantrt.assign.tables.region import FLOAT, Region
from quantrt.assign.tables.tables import Tables
from quantrt.errors import UsageError, close_match

__all__ = ["regions_named", "restrict"]

T = TypeVar("T")


def restrict(tables: Tables, floats: Collection[str]) -> Tables:
    """The tables as a solver may use them; what was measured of whole engines stays.

    Args:
        floats: names of regions that have to be float.
    """

    def cut(rows: Mapping[str, Mapping[str, T]]) -> dict[str, Mapping[str, T]]:
        return {
            name: {kind: value for kind, value in row.items() if kind == FLOAT or name not in floats}
            for name, row in rows.items()
        }

    costs, sizes = tables.costs, tables.sizes
    return replace(
        tables,
        damages=cut(tables.damages),
        costs=None
        if costs is None
        else replace(costs, times_ms=cut(costs.times_ms), codes_ms=cut(costs.codes_ms), unfitted=None),
        sizes=None if sizes is None else replace(sizes, bytes_of=cut(sizes.bytes_of)),
    )


def regions_named(regions: Sequence[Region], globs: Sequence[str], flag: str) -> frozenset[str]:
    """Names of the regions with a node that one of the globs means.

    Raises:
        UsageError: one means none; with what is called alike.
    """
    found: set[str] = set()
    for glob in globs:
        hits = [
            region.name
            for region in regions
            if any(node == glob or fnmatch.fnmatchcase(node, glob) for node in region.nodes)
        ]
        if not hits:
            near = close_match(glob, [node for region in regions for node in region.nodes])
            raise UsageError(
                f"{flag}: no region of the tables has a layer '{glob}'",
                expected=f"a name or pattern of its {len(regions)} regions, such as '{regions[0].name}'",
                hint=f"'{near}'" if near else f"{flag} '{regions[0].name}'",
            )
        found.update(hits)
    return frozenset(found)
