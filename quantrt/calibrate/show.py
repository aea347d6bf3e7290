# SPDX-License-Identifier: Apache-2.0
"""Statistics of a model's tensors as a small table, for notebooks and terminals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quantrt.calibrate.stats import Stats, TensorStats

__all__ = ["COLUMNS", "stats_rows", "stats_title"]

COLUMNS = ("tensor", "values", "min", "max")

FIRST = 20
"""Tensors that are shown; all of them are in `quantrt inspect --layers`."""


def stats_title(stats: Stats) -> str:
    """One line: of how many tensors over how many samples."""
    what = "random samples, which mean nothing" if stats.is_random else "samples"
    return f"{len(stats.tensors)} tensors over {stats.samples} {what}"


def stats_rows(tensors: Mapping[str, TensorStats]) -> list[tuple[str, str, str, str]]:
    """A row for each of the first tensors, and one for the number of the others."""
    rows = [
        (name, f"{tensor.count:,}", f"{tensor.lo:.4g}", f"{tensor.hi:.4g}")
        for name, tensor in list(tensors.items())[:FIRST]
    ]
    more = len(tensors) - len(rows)
    return [*rows, (f"and {more} more", "", "", "")] if more else rows
