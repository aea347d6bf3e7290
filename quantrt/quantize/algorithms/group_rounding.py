# SPDX-License-Identifier: Apache-2.0
"""Codes of 4 bits for groups of a weight's inputs, each group with a scale; rounding to the nearest code.

    W[k, n] ~ codes[k, n] * scales[k // group_size, n]          codes -8..7

A group's scale is the one of a few with the least squared error: of its largest magnitude over 8, on the side
where that has a code, or over 7, and parts of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["QMAX", "QMIN", "Groups", "choose_scales", "group_count", "round_nearest", "round_to"]

Array = np.ndarray[Any, Any]

QMIN, QMAX = -8, 7

CLIP_RATIOS = np.linspace(1.0, 0.7, 13)
"""Parts of a group's range that are tried: at 4 bits a Gaussian is best clipped near 2.6 sigma (Banner et al.
2019, "ACIQ"), well inside the largest of 128."""


@dataclass(frozen=True)
class Groups:
    """A weight in 4 bits.

    Attributes:
        codes: int8 [K, N], QMIN..QMAX.
        scales: f32 [groups of K, N]; where they need not be positive, of either sign, so that the largest
            magnitude may have the code -8.
        group_size: inputs that share a scale; the last group may have fewer.
    """

    codes: Array
    scales: Array
    group_size: int

    def dequantize(self) -> Array:
        """The values that the codes stand for, f32 [K, N]."""
        return np.asarray(self.codes * self.spread(), np.float32)

    def spread(self) -> Array:
        """The scale of each code, f32 [K, N]."""
        return np.repeat(self.scales, self.group_size, axis=0)[: len(self.codes)]


def group_count(inputs: int, group_size: int) -> int:
    """How many groups there are."""
    return -(-inputs // group_size)


def round_nearest(weight: Array, *, group_size: int, is_positive: bool = False) -> Groups:
    """Every weight [K, N] to its nearest code; `is_positive` is of the scales."""
    count = group_count(len(weight), group_size)
    starts = [slice(index * group_size, (index + 1) * group_size) for index in range(count)]
    scales = np.stack([choose_scales(weight[start], is_positive=is_positive) for start in starts])
    codes = np.concatenate([round_to(weight[s], scale) for s, scale in zip(starts, scales, strict=True)])
    return Groups(codes, scales, group_size)


def choose_scales(weights: Array, *, is_positive: bool = False) -> Array:
    """The scale of each column of a group with the least squared rounding error: f32 [N], none of them 0.

    Args:
        is_positive: leave out the negative ones, on which a positive largest weight has the code -8.
    """
    weights = weights.astype(np.float32, copy=False)
    largest = np.take_along_axis(weights, np.abs(weights).argmax(axis=0)[None], axis=0)[0]
    best, least = np.ones_like(largest), np.full(largest.shape, np.inf)
    for ends in (QMIN, QMAX):
        for ratio in CLIP_RATIOS:
            scale = largest * np.float32(ratio / ends)
            scale = np.abs(scale) if is_positive else scale
            scale = np.where(np.abs(scale) > np.finfo(np.float32).tiny, scale, np.float32(1.0))
            error = np.square(round_to(weights, scale) * scale - weights, dtype=np.float64).sum(axis=0)
            best = np.where(error < least, scale, best)
            least = np.minimum(error, least)
    return np.asarray(best, np.float32)


def round_to(weights: Array, scale: Array) -> Array:
    """The nearest codes, int8."""
    return np.clip(np.rint(weights / scale), QMIN, QMAX).astype(np.int8)
