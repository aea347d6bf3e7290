# SPDX-License-Identifier: Apache-2.0
"""Layers with their times against the roofline: how much of the whole each takes, and what binds it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quantrt.dtypes import CODE_PRECISIONS
from quantrt.plan.plan import Plan
from quantrt.report.engine_layers.layer import EngineLayer, is_conversion, runs_nothing
from quantrt.report.engine_layers.nodes import PRODUCTS
from quantrt.report.explain.neighbours import Conversion
from quantrt.report.explain.peaks import Peaks
from quantrt.report.explain.times import Times

__all__ = ["BOUNDS", "LayerRow", "has_unknown_products", "layer_rows"]

BOUNDS = ("launch", "memory", "compute")

NO_WORK = "no work: views, and sizes on the host"
CONVERSIONS = "conversions of type or layout"

_DETAIL = re.compile(r"[:;(].*$")


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """One layer, explained.

    Attributes:
        time_us, share_ratio: of a run, and of all layers together; None without a time.
        bound: of BOUNDS, the one whose least time is longest; empty where work or peaks are not known.
        roofline_us: the least time that its bytes and operations allow; None where they are not known.
        reached_ratio: roofline_us over time_us.
        cause: what its time is spent on, and for floats why they are floats; the same for many layers.
        conversions: that feed it or that it feeds, or that it is.
        missed: fusions that did not happen at it.
    """

    layer: EngineLayer
    time_us: float | None
    share_ratio: float | None
    bound: str
    roofline_us: float | None
    reached_ratio: float | None
    cause: str
    conversions: tuple[Conversion, ...]
    missed: tuple[str, ...]


def layer_rows(
    plan: Plan,
    layers: Sequence[EngineLayer],
    times: Times,
    peaks: Peaks | None,
    *,
    conversions: Sequence[Conversion],
    missed: Mapping[str, tuple[str, ...]],
) -> tuple[LayerRow, ...]:
    """One row per layer, in the order in which they run."""
    types = {layer.name: layer.op_type for layer in plan.layers}
    found = []
    for layer in layers:
        time_us = times.layer_us.get(layer.name)
        floors = _floors(layer, peaks, types) if time_us else {}
        works = [floors[name] for name in ("memory", "compute") if name in floors]
        roofline_us = max(works, default=None)
        found.append(
            LayerRow(
                layer=layer,
                time_us=time_us,
                share_ratio=None if time_us is None or not times.total_us else time_us / times.total_us,
                bound=max(floors, key=floors.__getitem__) if floors else "",
                roofline_us=roofline_us,
                reached_ratio=roofline_us / time_us if roofline_us is not None and time_us else None,
                cause=_cause(layer, types),
                conversions=tuple(
                    row for row in conversions if layer.name in (row.layer.name, row.maker, *row.readers)
                ),
                missed=missed.get(layer.name, ()),
            )
        )
    return tuple(found)


def has_unknown_products(layer: EngineLayer, types: Mapping[str, str]) -> bool:
    """Whether a layer multiplies, and nobody tells how much."""
    return layer.operations is None and any(types.get(node) in PRODUCTS for node in layer.nodes)


def _floors(layer: EngineLayer, peaks: Peaks | None, types: Mapping[str, str]) -> dict[str, float]:
    """Least microseconds by what could bind the layer; nothing where a part of its work is not known."""
    if peaks is None or layer.bytes_moved is None or has_unknown_products(layer, types):
        return {}
    compute_us = peaks.compute_us(layer.operations or 0, layer.computes_in) if layer.operations else 0.0
    if compute_us is None:
        return {}
    steps = len(layer.attributes.get("runners", ())) or 1
    return {
        "launch": peaks.launch_us * steps,
        "memory": peaks.memory_us(layer.bytes_moved),
        "compute": compute_us,
    }


def _cause(layer: EngineLayer, types: Mapping[str, str]) -> str:
    if is_conversion(layer):
        return CONVERSIONS
    if runs_nothing(layer):
        return NO_WORK
    is_product = bool(layer.operations) or any(types.get(node) in PRODUCTS for node in layer.nodes)
    what = "products" if is_product else "other layers"
    if not is_product and layer.precision in CODE_PRECISIONS and layer.computes_in not in CODE_PRECISIONS:
        return f"{what} in {layer.computes_in or 'no precision'}, on {layer.precision} codes"
    if layer.computes_in in CODE_PRECISIONS or not layer.reason:
        return f"{what} in {layer.computes_in or 'no precision'}"
    return f"{what} in {layer.computes_in or 'no precision'}: {_DETAIL.sub('', layer.reason).strip()}"
