# SPDX-License-Identifier: Apache-2.0
"""Products of integers in numpy, exact: sums of whole numbers stay below 2**53 in float64, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

__all__ = ["conv_sums"]

Array = np.ndarray[Any, Any]


def conv_sums(
    x: Array,
    w: Array,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    group: int,
) -> Array:
    """y[n, o, ...] = sum over c, taps of x[n, c, ...] * w[o, c, ...], padding is 0.

    Args:
        x: whole numbers, float64 [N, C, ...].
        w: whole numbers, float64 [O, C / group, ...].
        pads: in front of every axis of the images, then behind every one.

    Returns:
        float64 [N, O, ...].
    """
    rank = x.ndim - 2
    around = [(0, 0), (0, 0), *((pads[axis], pads[axis + rank]) for axis in range(rank))]
    extents = tuple((size - 1) * step + 1 for size, step in zip(w.shape[2:], dilations, strict=True))
    axes = tuple(range(2, 2 + rank))
    windows = sliding_window_view(np.pad(x, around), extents, axis=axes)
    picked = windows[
        (slice(None), slice(None), *(slice(None, None, step) for step in strides))
        + tuple(slice(None, None, step) for step in dilations)
    ]
    count, per_group = w.shape[0] // group, w.shape[1]
    parts = []
    for index in range(group):
        own = picked[:, index * per_group : (index + 1) * per_group]
        taps = w[index * count : (index + 1) * count].reshape(count, -1)
        # [N, C, images..., taps...] -> [N, images..., C, taps...]
        order = (0, *range(2, 2 + rank), 1, *range(2 + rank, 2 + 2 * rank))
        rows = own.transpose(order).reshape(*own.shape[:1], *own.shape[2 : 2 + rank], -1)
        parts.append(np.moveaxis(rows @ taps.T, -1, 1))
    return np.concatenate(parts, axis=1)
