# SPDX-License-Identifier: Apache-2.0
"""What a Q/DQ file has in codes: layers that compute on codes, and weights that are codes for their size."""

from __future__ import annotations

from dataclasses import replace

from quantrt.assign.tables.region import Region, find_regions
from quantrt.quantize.quantized_model import Placement

__all__ = ["coded_nodes", "coded_regions"]


def coded_nodes(placement: Placement) -> frozenset[str]:
    """Names of the nodes that compute on codes, or whose weights are codes that floats multiply."""
    stored = {node for node, _ in placement.weights}
    return frozenset(row.node for row in placement.decisions if row.is_int8) | stored


def coded_regions(placement: Placement) -> tuple[Region, ...]:
    """A region for each of them, in topological order."""
    coded = coded_nodes(placement)
    rows = (replace(row, is_int8=row.node in coded) for row in placement.decisions)
    return find_regions(replace(placement, decisions=tuple(rows)))
