# SPDX-License-Identifier: Apache-2.0
"""What kernels take in a whole engine, of what each of them takes alone: a factor for floats, one for codes.

    measured[e] = floats * alone[e, floats] + codes * alone[e, codes]        of every engine e that was timed

On a GPU kernels are timed one by one with nothing in L2. In an engine they find there what the kernel before
has just written, which of codes is more. The two factors are taken for alike as far as engines do not tell
them apart, so with engines in floats alone there is one. Least squares of the ratios to what was measured:

    least   sum_e (predicted[e] / measured[e] - 1)^2 / ENGINE_RATIO^2 + (floats - codes)^2 / FACTORS_RATIO^2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

__all__ = ["Factors", "TimedKernels", "fit_factors"]

ENGINE_RATIO = 0.02
"""What one engine's time differs by from turn to turn, as the GPU gets warmer."""

FACTORS_RATIO = 0.15
"""What the factors of floats and codes differ by. Over 12 engines of two diffusion networks on an H200, each
network's own fitted together: 0.91 to 0.95 for floats, 0.74 to 0.88 for codes (ed5eb53)."""


@dataclass(frozen=True)
class TimedKernels:
    """The kernels of an engine.

    Attributes:
        floats_ms, codes_ms: of those that compute in floats and in codes, each timed alone: their sums.
        latency_ms: of the whole engine.
    """

    floats_ms: float
    codes_ms: float
    latency_ms: float


@dataclass(frozen=True)
class Factors:
    """What a kernel takes in an engine, over what it takes alone."""

    floats: float = 1.0
    codes: float = 1.0

    def together_ms(self, floats_ms: float, codes_ms: float) -> float:
        """What an engine takes whose kernels take so long alone."""
        return self.floats * floats_ms + self.codes * codes_ms


def fit_factors(engines: Sequence[TimedKernels]) -> Factors:
    """The factors, 0 or more, by engines that were timed; 1 for both where none has a timed kernel."""
    rows = [(one.floats_ms / one.latency_ms, one.codes_ms / one.latency_ms) for one in engines]
    if not np.any(rows):
        return Factors()
    alike = ENGINE_RATIO / FACTORS_RATIO
    floats, codes = nnls(np.array([*rows, (alike, -alike)]), np.array([*(1.0 for _ in rows), 0.0]))[0]
    return Factors(float(floats), float(codes))
