# SPDX-License-Identifier: Apache-2.0
"""GPTQ: columns of a weight are rounded in turn, the rest takes back the error (arXiv 2210.17323, section 3).

    minimize |X Wq - X W|^2,   H = X' X + damping,   for each input k:
        Wq[k] = round(W[k]);   W[j] -= (W[k] - Wq[k]) / inv(H)[k, k] * inv(H)[k, j]   for j > k

inv(H) of what is left is read off the Cholesky factor of the whole inverse (section 3.3, step 3), and blocks
of inputs are finished before the others hear of them (step 2). A group's scale is chosen when its first
input is reached, from weights that have taken back the errors before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quantrt.quantize.algorithms.group_rounding import Groups, choose_scales, group_count, round_to

__all__ = ["round_by_gptq"]

Array = np.ndarray[Any, Any]

DAMPING = 0.01
"""Of the mean of H's diagonal, added to it (section 3.3): inputs that never vary leave H singular."""
BLOCK = 128
"""Inputs between two updates of all that is left (section 3.3)."""


def round_by_gptq(weight: Array, gram: Array, *, group_size: int, is_positive: bool = False) -> Groups:
    """Codes of 4 bits in groups of inputs.

    Args:
        weight: f32 [K, N].
        gram: X' X of what the weight is multiplied with, or a part of it, f64 [K, K].
        group_size: a divisor of BLOCK, so that a group's weights have taken back all errors before it.
        is_positive: of the scales.

    Raises:
        ValueError: another group size.
        numpy.linalg.LinAlgError: the matrix of the inputs is not positive, as of NaN among them.
    """
    if BLOCK % group_size:
        raise ValueError(f"groups of {group_size} do not divide blocks of {BLOCK}")
    inputs, outputs = weight.shape
    left = weight.astype(np.float64)
    factor = _inverse_factor(gram)
    codes = np.zeros((inputs, outputs), np.int8)
    scales = np.zeros((group_count(inputs, group_size), outputs), np.float32)
    for first in range(0, inputs, BLOCK):
        block = range(first, min(first + BLOCK, inputs))
        errors = np.zeros((len(block), outputs))
        for k in block:
            group = k // group_size
            if k % group_size == 0:
                scales[group] = choose_scales(left[k : k + group_size], is_positive=is_positive)
            codes[k] = round_to(left[k], scales[group])
            error = (left[k] - codes[k] * scales[group]) / factor[k, k]
            left[k + 1 : block.stop] -= np.outer(factor[k, k + 1 : block.stop], error)
            errors[k - first] = error
        left[block.stop :] -= factor[block.start : block.stop, block.stop :].T @ errors
    return Groups(codes, scales, group_size)


def _inverse_factor(gram: Array) -> Array:
    """The upper Cholesky factor of the inverse of H."""
    damped = gram.copy()
    diagonal = np.diagonal(damped)
    mean = float(diagonal.mean())
    damped[np.diag_indices_from(damped)] += DAMPING * mean if mean > 0 else 1.0
    return np.asarray(np.linalg.cholesky(np.linalg.inv(damped)).T)
