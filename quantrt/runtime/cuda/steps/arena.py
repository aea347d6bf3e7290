# SPDX-License-Identifier: Apache-2.0
"""Where in one piece of memory each buffer goes, from the steps between which it is alive.

Offline dynamic storage allocation, greedy by size (Pisarchyk and Lee, "Efficient memory management for deep
neural net inference", 2020, section 5.2): the largest buffer first, each into the smallest gap that fits
between those already placed that are alive at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "ArenaPlan", "Lifetime", "align", "plan_arena"]

ALIGNMENT = 256
"""Bytes: what cudaMalloc guarantees, and more than any vector load needs."""


@dataclass(frozen=True)
class Lifetime:
    """One piece of memory and the steps that need it.

    Attributes:
        size_bytes: of its contents.
        first, last: the step that writes it first, the step that reads it last, views of it included.
    """

    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class ArenaPlan:
    """Places in the arena.

    Attributes:
        offsets: in bytes, one per lifetime, multiples of ALIGNMENT.
        size_bytes: of the arena.
        sum_bytes: what the buffers would take side by side.
    """

    offsets: tuple[int, ...]
    size_bytes: int
    sum_bytes: int


def plan_arena(lifetimes: Sequence[Lifetime]) -> ArenaPlan:
    """Offsets such that buffers alive at the same step never overlap."""
    sizes = [align(lifetime.size_bytes) for lifetime in lifetimes]
    order = sorted(
        range(len(lifetimes)), key=lambda number: (-sizes[number], lifetimes[number].first, number)
    )
    offsets = [0] * len(lifetimes)
    placed: list[int] = []  # by offset
    total = 0
    for number in order:
        mine = lifetimes[number]
        taken = [
            (offsets[other], offsets[other] + sizes[other])
            for other in placed
            if lifetimes[other].first <= mine.last and mine.first <= lifetimes[other].last
        ]
        offsets[number] = _best_gap(taken, sizes[number])
        total = max(total, offsets[number] + sizes[number])
        placed.append(number)
        placed.sort(key=lambda other: offsets[other])
    return ArenaPlan(tuple(offsets), total, sum(sizes))


def align(size_bytes: int) -> int:
    """The size rounded up to whole alignments."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def _best_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that holds `size` bytes; the end of all where none does.

    Args:
        taken: begin and end of what is in the way, by begin.
    """
    best, best_room, end = -1, 0, 0
    for begin, until in taken:
        room = begin - end
        if room >= size and (best < 0 or room < best_room):
            best, best_room = end, room
        end = max(end, until)
    return end if best < 0 else best
