# SPDX-License-Identifier: Apache-2.0
"""When a candidate has lost so much on the first samples that the rest cannot matter.

    lost = mean(d) - SURE_ERRORS * std(d) / sqrt(n),   d = float's score - candidate's, sample by sample

The two are judged on the same samples, so what counts is how much their difference spreads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["Looks", "is_surely_over"]

SURE_ERRORS = 4.0
"""Standard errors: one look in 30,000 is wrong."""

FIRST_LOOK = 128
"""Samples before the first look."""

GROWTH = 1.5
"""From look to look, so that looks stay few."""


class Looks:
    """When to look: at ever larger numbers of samples."""

    def __init__(self) -> None:
        self.due = float(FIRST_LOOK)
        """Samples before the next look."""

    def is_due(self, samples: int) -> bool:
        """Whether to look now; asked with a growing number."""
        is_due = samples >= self.due
        if is_due:
            self.due = samples * GROWTH
        return is_due


def is_surely_over(
    floats: np.ndarray[Any, Any],
    scores: np.ndarray[Any, Any],
    max_drop_ratio: float,
    *,
    errors: float = SURE_ERRORS,
) -> bool:
    """Whether the drop on all samples is over the budget, by those so far.

    Args:
        floats, scores: of the float model and the candidate, one number per sample [N]; larger is better.
        max_drop_ratio: of the mean, relative to that of the float model.
        errors: standard errors that make it sure.
    """
    difference = floats.astype(np.float64) - scores
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference)) if len(difference) > 1 else math.inf
    least = float(difference.mean()) - errors * error
    return least > max_drop_ratio * float(np.abs(floats).mean())
