# SPDX-License-Identifier: Apache-2.0
"""The smallest part of a sequence that still fails: delta debugging (Zeller and Hildebrandt 2002, ddmin).

First halves, then ever smaller pieces, alone and taken away. Nothing is assumed of the failure: it need not
be monotone. What is left fails, and fails no more when any one item is taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["smallest"]

T = TypeVar("T")


def smallest(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A part of `items`, in their order, that fails and of which no item can be spared.

    Args:
        items: fail as a whole.
        fails: asked once for every part.
    """
    known: dict[tuple[int, ...], bool] = {}

    def ask(part: list[int]) -> bool:
        key = tuple(part)
        if key not in known:
            known[key] = bool(part) and fails([items[index] for index in part])
        return known[key]

    kept, pieces = list(range(len(items))), 2
    while len(kept) > 1:
        chunks = _chunks(kept, pieces)
        alone = next((chunk for chunk in chunks if ask(chunk)), None)
        if alone is not None:
            kept, pieces = alone, 2
            continue
        rest = (_without(kept, chunk) for chunk in chunks)
        spared = next((part for part in rest if ask(part)), None)
        if spared is not None:
            kept, pieces = spared, max(pieces - 1, 2)
        elif pieces >= len(kept):
            break
        else:
            pieces = min(2 * pieces, len(kept))
    return [items[index] for index in kept]


def _chunks(items: list[int], count: int) -> list[list[int]]:
    """`count` neighbouring parts of nearly one size."""
    bounds = [len(items) * number // count for number in range(count + 1)]
    return [items[low:high] for low, high in zip(bounds, bounds[1:], strict=False) if low < high]


def _without(items: list[int], part: list[int]) -> list[int]:
    gone = set(part)
    return [item for item in items if item not in gone]
