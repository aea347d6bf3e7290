# SPDX-License-Identifier: Apache-2.0
"""AWQ: weights that meet large activations are scaled up before rounding (arXiv 2306.00978, section 3.2).

    X W = (X diag(s)^-1) (diag(s) W)        s[c] = mean|X[:, c]|^a
    a = argmin |X diag(s)^-1 round(diag(s) W) - X W|^2

A weight's rounding error hardly grows with s, but is divided by s again. a is searched for each activation
that products read, 0 among the strengths; what it is divided by goes where SmoothQuant's factors go
(`quantrt.quantize.algorithms.smoothing`): into what makes it, or into a Mul where that gains enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.quantize.algorithms.group_rounding import round_nearest
from quantrt.quantize.algorithms.smoothing import Site, Smoothing, choose_for_sites

__all__ = ["choose_awq"]

Array = np.ndarray[Any, Any]

STRENGTHS = tuple(np.linspace(0.1, 0.9, 9))
LEAST_RATIO = 1e-2
"""Smaller channels count as this part of the largest."""
FOLD_GAIN = 0.97
MULTIPLY_GAIN = 0.8
"""Error of the products over that without, above which nothing is scaled; a Mul costs time."""


def choose_awq(graph: ir.Model, batches: Iterable[Mapping[str, Array]], *, group_size: int) -> Smoothing:
    """What to divide the activations of a float graph by before its weights are rounded to 4 bits.

    Args:
        batches: inputs of the model by name.
    """

    def best(site: Site, ranges: Array, rows: Array) -> Array | None:
        return _best_scale(site, rows, group_size)

    return choose_for_sites(graph, batches, best)


def _best_scale(site: Site, rows: Array, group_size: int) -> Array | None:
    means = np.abs(rows).mean(axis=0, dtype=np.float64)
    largest = float(means.max(initial=0.0))
    if not (np.isfinite(largest) and largest > 0):
        return None
    means = np.maximum(means, largest * LEAST_RATIO)
    scales = [np.ones(len(means), np.float32), *(_centred(means**a) for a in STRENGTHS)]
    errors = [_error(rows, site.weights, scale, group_size) for scale in scales]
    best = int(np.argmin(errors))
    gain = FOLD_GAIN if site.layer is not None else MULTIPLY_GAIN
    return scales[best] if errors[best] < gain * errors[0] else None


def _error(rows: Array, weights: Array, scale: Array, group_size: int) -> float:
    """Squared error of the products with the weights rounded after they were multiplied by `scale`."""
    scaled = weights * scale[:, None]
    change = (round_nearest(scaled, group_size=group_size).dequantize() - scaled) / scale[:, None]
    return float(np.square(rows @ change, dtype=np.float64).sum())


def _centred(scale: Array) -> Array:
    return np.asarray(scale / np.sqrt(scale.max() * scale.min()), np.float32)
