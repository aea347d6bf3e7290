# SPDX-License-Identifier: Apache-2.0
"""Which slices stay: Compress by a condition, Unique by value."""

from __future__ import annotations

import torch

from quantrt.operators.element_types import restored, stored
from quantrt.operators.elementwise.unsigned import ordered
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "compress", "unique"]


def compress(x: torch.Tensor, condition: torch.Tensor, *, axis: int | None = None) -> torch.Tensor:
    """The slices of x along the axis for which the condition holds; of x flattened without one.

    Args:
        condition: bool, at most as many as there are slices; those behind the last go.
    """
    kept = stored(x).reshape(-1) if axis is None else stored(x)
    places = condition.nonzero().reshape(-1)
    return restored(kept.index_select(0 if axis is None else axis, places), x.dtype)


def unique(
    x: torch.Tensor, *, axis: int | None = None, sorted: int = 1
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Distinct elements, or slices along the axis, sorted or in the order of their first appearance.

    Returns:
        Those; for each of them the place of its first appearance; for each of x's the number of the one it
        equals; how often each appears. All but the first int64.
    """
    kept = x.reshape(-1) if axis is None else x
    along = 0 if axis is None else axis
    found, inverse, counts = torch.unique(
        ordered(kept), sorted=True, return_inverse=True, return_counts=True, dim=along
    )
    size = found.shape[along]
    places = torch.arange(inverse.numel(), device=x.device)
    first = places.new_full((size,), inverse.numel()).scatter_reduce(0, inverse, places, "amin")
    if not sorted:
        order = torch.argsort(first)
        first, counts = first[order], counts[order]
        inverse = torch.argsort(order)[inverse]
    values = restored(stored(kept).index_select(along, first), x.dtype)
    return values, first, inverse, counts


OPERATORS = (Operator("Compress", 9, compress), Operator("Unique", 11, unique))
