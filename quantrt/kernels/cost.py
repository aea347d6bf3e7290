# SPDX-License-Identifier: Apache-2.0
"""What a kernel cannot do without, however it is cut."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cost"]


@dataclass(frozen=True)
class Cost:
    """What a problem needs at least.

    Attributes:
        flops: multiplications and additions of a product; instructions, roughly, where there is none.
        size_bytes: of everything that is read and written once.
        time_us: the longer of the two at rates that are reached in practice.
        is_bound_by_memory: whether it is that of the bytes, where the family asks.
    """

    flops: int
    size_bytes: int
    time_us: float
    is_bound_by_memory: bool = False
