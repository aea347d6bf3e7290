# SPDX-License-Identifier: Apache-2.0
"""Products of integers in numpy, exact: sums of whole numbers stay below 2**53 in float64, in any order."""

from __future__ import annotations

from typing import Any

import numpy as np

from quantrt.reference.windows import Windows, cut_windows

__all__ = ["conv_sums"]

Array = np.ndarray[Any, Any]


def conv_sums(x: Array, w: Array, windows: Windows, *, group: int) -> Array:
    """y[n, o, ...] = sum over c, taps of x[n, c, ...] * w[o, c, ...], padding is 0.

    Args:
        x: whole numbers, float64 [N, C, ...].
        w: whole numbers, float64 [O, C / group, ...].

    Returns:
        float64 [N, O, ...].
    """
    rank = x.ndim - 2
    picked = cut_windows(x, w.shape[2:], windows)
    count, per_group = w.shape[0] // group, w.shape[1]
    parts = []
    for index in range(group):
        own = picked[:, index * per_group : (index + 1) * per_group]
        taps = w[index * count : (index + 1) * count].reshape(count, -1)
        # [N, C, places..., taps...] -> [N, places..., C, taps...]
        order = (0, *range(2, 2 + rank), 1, *range(2 + rank, 2 + 2 * rank))
        rows = own.transpose(order).reshape(*own.shape[:1], *own.shape[2 : 2 + rank], -1)
        parts.append(np.moveaxis(rows @ taps.T, -1, 1))
    return np.concatenate(parts, axis=1)
