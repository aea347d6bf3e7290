# SPDX-License-Identifier: Apache-2.0
"""Latency samples as a small histogram, JSON-ready."""

from __future__ import annotations

from typing import Any

import numpy as np

from quantrt.tactics.timing import Latency

__all__ = ["LATENCY_BINS", "latency_bins"]

LATENCY_BINS = 40

LAST_RATIO = 0.99
"""The bins end at this quantile: one run that the system interrupted would leave the others in one bin."""


def latency_bins(latency: Latency) -> dict[str, Any]:
    """Counts of runs in LATENCY_BINS bins of equal width from the fastest to the 99 % quantile.

    Returns:
        {"lo_ms", "hi_ms", "counts", "above": runs that took longer than hi_ms}.
    """
    samples = np.asarray(latency.samples_ms)
    lo_ms, hi_ms = latency.min_ms, max(latency.p(LAST_RATIO), latency.min_ms * (1 + 1e-6))
    inside = samples[samples <= hi_ms]
    counts, _ = np.histogram(inside, LATENCY_BINS, (lo_ms, hi_ms))
    return {
        "lo_ms": float(f"{lo_ms:.5g}"),
        "hi_ms": float(f"{hi_ms:.5g}"),
        "counts": counts.tolist(),
        "above": len(samples) - len(inside),
    }
