# SPDX-License-Identifier: Apache-2.0
"""Numbers as a report has them: JSON knows no infinity and no NaN, and null stands for both."""

from __future__ import annotations

import math

__all__ = ["finite", "or_infinity"]


def finite(value: float | None) -> float | None:
    """A number for a report."""
    return value if value is not None and math.isfinite(value) else None


def or_infinity(value: float | None) -> float:
    """A number of a report, where null stands for infinity: equal outputs have no noise."""
    return math.inf if value is None else value
