# SPDX-License-Identifier: Apache-2.0
"""y[images, P, Q, N] = epilogue(conv(x[images, H, W, N], w[R, S, N])), each channel by itself.

int8 codes accumulate in int32, exactly; float16 in float32. The epilogue reads the accumulator as float32.
"""

from __future__ import annotations

from quantrt.kernels.conv2d.spec import ConvProblem, kernel_types, size_arguments
from quantrt.kernels.epilogue.spec import epilogue_constants, why_not_epilogue
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.kernel import KernelSpec, pointers_of
from quantrt.kernels.pixel_tile import PixelTile

__all__ = ["kernel_of", "why_not"]

MAX_TAPS = 49
"""Taps are unrolled: 7x7 is the largest that models use."""

MAX_OFFSET = 2**31 - 1


def why_not(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute the problem, in one phrase; None when it can."""
    taps = problem.R * problem.S
    reach = problem.R * problem.dilations[0] * (problem.W + problem.S * problem.dilations[1]) * problem.N
    reasons = (
        (
            problem.dtype not in ("int8", "float16", "bfloat16"),
            f"no depthwise convolution of {problem.dtype}",
        ),
        (problem.C != problem.N, f"{problem.C} channels in and {problem.N} out"),
        (taps > MAX_TAPS, f"{taps} taps: at most {MAX_TAPS}"),
        (problem.N < 1 or taps < 1, "an empty weight"),
        (max(reach, problem.N * 256) > MAX_OFFSET, "offsets in a tile beyond 32 bits"),
    )
    return next((reason for is_so, reason in reasons if is_so), None) or why_not_epilogue(problem)


def kernel_of(problem: ConvProblem, config: PixelTile) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. Images, H and W do not enter it."""
    types = kernel_types(problem)
    fixed = {
        "N": problem.N,
        "R": problem.R,
        "S": problem.S,
        "STRIDES": problem.strides,
        "PADS": problem.pads,
        "PAD_CODE": problem.pad_code,
        "DILATIONS": problem.dilations,
        **epilogue_constants(problem),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
    }
    return KernelSpec(
        family="depthwise",
        function="depthwise",
        signature=(*types.items(), *size_arguments()),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=config.num_warps,
        num_stages=1,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )
