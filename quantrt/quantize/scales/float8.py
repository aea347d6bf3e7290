# SPDX-License-Identifier: Apache-2.0
"""Float32 to FP8 E4M3, by arithmetic on the bits.

The cast of ml_dtypes gives the same, but one thread at a time: it holds Python's lock.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["to_e4m3"]

Array = np.ndarray[Any, Any]

DROPPED_BITS = 20
"""Of float32's 23 bits of mantissa; E4M3 has 3."""

BIAS = (127 - 7) << 3
"""Between the exponents of the two, in E4M3's bits."""

LEAST_NORMAL = np.float32(2.0**-6)

GRID = np.float32(2.0**14)
"""Float32's numbers from here on are 2^-9 apart, as E4M3's below LEAST_NORMAL are."""

NAN = 0x7F


def to_e4m3(values: Array) -> Array:
    """The nearest numbers of E4M3, halfway to the even mantissa; NaN stays NaN.

    Args:
        values: float32, any shape, between -448 and 448.
    """
    bits = values.view(np.uint32)
    codes = bits & np.uint32(0x7FFFFFFF)
    magnitudes = codes.view(np.float32)
    is_small = magnitudes < LEAST_NORMAL
    small = (magnitudes + GRID).view(np.uint32) - GRID.view(np.uint32)
    codes += (codes >> DROPPED_BITS) & 1
    codes += (1 << (DROPPED_BITS - 1)) - 1
    codes >>= DROPPED_BITS
    codes -= BIAS
    np.copyto(codes, small, where=is_small)
    np.minimum(codes, NAN, out=codes)
    codes |= (bits >> 24) & 0x80
    return codes.astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
