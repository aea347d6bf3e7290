# SPDX-License-Identifier: Apache-2.0
"""Convolutions that are products: a kernel of one element multiplies every pixel's channels by one matrix."""

from __future__ import annotations

import math

from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.gemm.spec import MAX_STRIDE_UNIT, GemmProblem

__all__ = ["as_product", "product_of"]


def product_of(problem: ConvProblem) -> GemmProblem | None:
    """The convolution as x[pixels, C] @ w[N, C]^T; None where windows are larger or far apart."""
    if (problem.R, problem.S) != (1, 1) or problem.strides != (1, 1) or any(problem.pads):
        return None
    return as_product(problem)


def as_product(problem: ConvProblem) -> GemmProblem:
    """The product of windows [pixels, R * S * C], wherever they lie, and w[N, R * S * C]^T."""
    return GemmProblem(
        M=problem.pixels,
        N=problem.N,
        K=problem.depth,
        dtype=problem.dtype,
        stride_unit=math.gcd(MAX_STRIDE_UNIT, problem.x_pitch or problem.C),
        epilogue=problem.epilogue,
        tensors=problem.tensors,
        outputs=problem.outputs,
        pitches=problem.pitches,
    )
