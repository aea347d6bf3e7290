# SPDX-License-Identifier: Apache-2.0
"""Images of one spatial axis, or none, as the kernels for two see them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["as_pair"]


def as_pair(numbers: Sequence[int], above: int) -> tuple[int, int]:
    """Numbers per spatial axis as (vertical, horizontal); a single axis is horizontal.

    Args:
        numbers: two at most.
        above: the number of an axis that is not there.
    """
    first, second = (*[above] * (2 - len(numbers)), *numbers)
    return int(first), int(second)
