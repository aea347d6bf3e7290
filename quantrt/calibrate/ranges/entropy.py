# SPDX-License-Identifier: Apache-2.0
"""The clipping threshold with the least Kullback-Leibler divergence.

S. Migacz, "8-bit Inference with TensorRT", GTC 2017: the magnitudes fall into 2,048 equal bins. For every
threshold of i bins, i = L..2048, the reference P is the first i bins with everything above added to the
last one, and the candidate Q is the same bins without it, merged into L levels, each spread evenly over its
occupied bins. The i with the least KL(P || Q) wins. L is 128 when a sign takes half of the codes, and 256
when it does not.

Bin 0 counts as much as bin 1, as in NVIDIA's pytorch-quantization (calib/histogram.py): zero is exact on
every grid, and the spike that a ReLU leaves there would otherwise decide alone.
"""

from __future__ import annotations

import numpy as np

from quantrt.calibrate.ranges.grid import Bins, Doubles, Grid

__all__ = ["entropy_threshold"]

LINEAR_BINS = 2048
SMOOTHING = 1e-4
"""Values that Q is given where it has none and P does (outliers in an empty last bin), as in ONNX Runtime's
and MXNet's calibrators; without it a single far outlier could never be clipped."""


def entropy_threshold(bins: Bins, grid: Grid) -> float:
    """The magnitude to clip at."""
    amax = float(max(-bins.left.min(), bins.right.max()))
    two_sided = bool(bins.left.min() < 0 < bins.right.max())
    uses_sign = two_sided or (grid.symmetric and grid.signed)
    levels = grid.levels // 2 if uses_sign else grid.levels
    if amax == 0.0 or levels >= LINEAR_BINS:
        return amax
    histogram = _linear_histogram(bins, amax)
    histogram[0] = histogram[1]
    if not histogram.any():
        return amax
    divergence = _divergences(histogram, levels)
    kept = LINEAR_BINS - int(np.argmin(divergence[::-1]))  # the widest of equals
    return amax * kept / LINEAR_BINS


def _linear_histogram(bins: Bins, amax: float) -> Doubles:
    """Magnitudes in LINEAR_BINS equal bins up to amax; a source bin is spread evenly over what it covers."""
    left, right = np.abs(bins.left), np.abs(bins.right)
    left, right = np.minimum(left, right), np.maximum(left, right)
    order = np.argsort(left, kind="stable")
    left, right, count = left[order] / amax, right[order] / amax, bins.count[order]
    edges = np.arange(LINEAR_BINS + 1) / LINEAR_BINS
    points = right <= left
    width = np.where(points, 1.0, right - left)
    histogram = np.zeros(LINEAR_BINS)
    index = np.minimum((left[points] * LINEAR_BINS).astype(np.intp), LINEAR_BINS - 1)
    np.add.at(histogram, index, count[points])
    # Bins of one sign do not overlap, so at most two of them cover an edge.
    spread = ~points
    first = np.minimum((left * LINEAR_BINS).astype(np.intp), LINEAR_BINS - 1)
    last = np.minimum((right * LINEAR_BINS).astype(np.intp), LINEAR_BINS - 1)
    for step in range(int((last - first)[spread].max(initial=-1)) + 1):
        target = first + step
        active = spread & (target <= last)
        at = target[active]
        overlap = np.minimum(right[active], edges[at + 1]) - np.maximum(left[active], edges[at])
        np.add.at(histogram, at, count[active] * np.maximum(overlap, 0.0) / width[active])
    return histogram


def _divergences(histogram: Doubles, levels: int) -> Doubles:
    """KL(P || Q) for thresholds of levels, levels + 1, ... all bins; infinite for an empty Q.

    Sums over groups are differences of cumulative sums, so all thresholds are done at once.
    """
    total = float(histogram.sum())
    kept = np.arange(levels, len(histogram) + 1)
    mass = np.concatenate([[0.0], np.cumsum(histogram)])
    occupied = np.concatenate([[0.0], np.cumsum(histogram > 0)])
    entropy = np.concatenate([[0.0], np.cumsum(_x_log_x(histogram))])
    outliers = np.maximum(total - mass[kept], 0.0)
    last = histogram[kept - 1]

    edges = np.arange(levels + 1) * kept[:, None] // levels
    group_mass = np.diff(mass[edges], axis=1)
    group_bins = np.diff(occupied[edges], axis=1)
    group_bins[:, -1] += (last == 0) & (outliers > 0)
    p_mass = group_mass.copy()
    p_mass[:, -1] += outliers
    q_each = np.maximum(group_mass, SMOOTHING) / np.maximum(group_bins, 1.0)
    cross = (p_mass * np.log(q_each)).sum(axis=1)
    own = entropy[kept - 1] + _x_log_x(last + outliers)
    q_total = np.where(mass[kept] > 0, mass[kept], np.inf)
    return np.asarray((own - cross) / total - np.log(total) + np.log(q_total))


def _x_log_x(x: Doubles) -> Doubles:
    return np.asarray(x * np.log(np.where(x > 0, x, 1.0)))
