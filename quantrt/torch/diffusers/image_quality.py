# SPDX-License-Identifier: Apache-2.0
"""How alike two images are: peak signal to noise ratio, and structural similarity.

Wang, Bovik, Sheikh, Simoncelli, "Image quality assessment: from error visibility to structural similarity",
IEEE Transactions on Image Processing 13(4), 2004: Gaussian windows of 11 pixels with sigma 1.5, K1 = 0.01,
K2 = 0.03.
"""

from __future__ import annotations

import math

import numpy as np

from quantrt.errors import DataError

__all__ = ["psnr_db", "ssim"]

_SIGMA = 1.5
_RADIUS = 5
_K1, _K2 = 0.01, 0.03


def psnr_db(reference: np.ndarray, image: np.ndarray) -> float:
    """10 log10(1 / mean squared error); infinite for equal images.

    Args:
        reference, image: floats from 0 to 1, of one shape.

    Raises:
        DataError: the shapes differ, or a value is not finite.
    """
    a, b = _pair(reference, image)
    error = float(np.mean((a - b) ** 2))
    return math.inf if error == 0.0 else -10.0 * math.log10(error)


def ssim(reference: np.ndarray, image: np.ndarray) -> float:
    """Mean structural similarity of pixels and channels where the window is inside; 1 for equal images.

    Args:
        reference, image: floats from 0 to 1 [height, width, channels], at least 11 pixels high and wide.

    Raises:
        DataError: the shapes differ or are too small, or a value is not finite.
    """
    from scipy.ndimage import correlate1d  # not at the top: only images need it

    a, b = _pair(reference, image)
    if a.ndim != 3 or min(a.shape[:2]) <= 2 * _RADIUS:
        raise DataError(
            "cannot compare these images by structure",
            got=f"shape {a.shape}",
            expected=f"[height, width, channels] of {2 * _RADIUS + 1} pixels at least",
        )
    steps = np.arange(-_RADIUS, _RADIUS + 1)
    window = np.exp(-(steps**2) / (2 * _SIGMA**2))
    window /= window.sum()

    def mean(x: np.ndarray) -> np.ndarray:
        rows = correlate1d(x, window, axis=0)
        both: np.ndarray = correlate1d(rows, window, axis=1)
        return both[_RADIUS:-_RADIUS, _RADIUS:-_RADIUS]

    mean_a, mean_b = mean(a), mean(b)
    variance_a, variance_b = mean(a * a) - mean_a**2, mean(b * b) - mean_b**2
    covariance = mean(a * b) - mean_a * mean_b
    c1, c2 = _K1**2, _K2**2
    likeness = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    return float(np.mean(likeness / ((mean_a**2 + mean_b**2 + c1) * (variance_a + variance_b + c2))))


def _pair(reference: np.ndarray, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if reference.shape != image.shape:
        raise DataError(
            "cannot compare images of different shapes",
            got=f"{image.shape}",
            expected=f"{reference.shape} like the reference",
        )
    if not (np.isfinite(reference).all() and np.isfinite(image).all()):
        raise DataError("cannot compare images with values that are not finite")
    return reference.astype(np.float64), image.astype(np.float64)
