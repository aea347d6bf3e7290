# SPDX-License-Identifier: Apache-2.0
"""y[images, P, Q, N] = epilogue(pool(x[images, H, W, N])) over windows; over whole images y is [images, N].

The maximum of int8 codes is a code, their mean a float32 of an exact sum; floats are pooled in float32. The
epilogue reads what was pooled as float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quantrt.kernels.conv2d.spec import ConvProblem, kernel_types, size_arguments
from quantrt.kernels.epilogue.spec import epilogue_constants, pitch_constants, why_not_epilogue
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.kernel import KernelSpec, pointers_of
from quantrt.kernels.pixel_tile import PixelTile

__all__ = ["MAX_UNROLLED", "PoolProblem", "kernel_of", "why_not"]

MAX_OFFSET = 2**31 - 1
MAX_BLOCK = 256

MAX_SUMMED = (2**31 - 1) // 128
"""Codes that always fit an int32 sum."""

PACKED = 4
"""Codes in a number of 32 bits."""

MAX_UNROLLED = 49
"""Taps of a 7x7 window; longer ones are a loop."""


@dataclass(frozen=True)
class PoolProblem:
    """One pool with its epilogue.

    Attributes:
        window: as if it were a convolution of every channel by itself; over a whole image, of its size.
        kind: "max" or "average".
    """

    window: ConvProblem
    kind: str
    has_ceil: bool = False
    counts_padding: bool = False
    is_global: bool = False

    @property
    def is_inside(self) -> bool:
        """Whether no window leaves the image."""
        return not self.has_ceil and not any(self.window.pads)

    @property
    def is_packed(self) -> bool:
        """Whether codes are compared without being unpacked."""
        is_max = self.kind == "max" and self.window.dtype == "int8"
        is_whole = self.window.N % PACKED == 0 and self.window.x_pitch % PACKED == 0
        return is_max and is_whole and self.window.R * self.window.S <= MAX_UNROLLED


def why_not(problem: PoolProblem) -> str | None:
    """Why the kernels cannot compute the problem, in one phrase; None when they can."""
    window = problem.window
    reach = window.R * window.dilations[0] * (window.W + window.S * window.dilations[1])
    reach *= window.x_pitch or window.N
    summed = window.H * window.W if problem.is_global else window.R * window.S
    reasons = (
        (window.dtype not in ("int8", "float16", "bfloat16", "float32"), f"no pool of {window.dtype}"),
        (problem.is_global and window.has_gaps, "pixels with gaps between"),
        (window.N < 1 or window.R < 1 or window.S < 1, "an empty window"),
        (problem.kind == "average" and summed > MAX_SUMMED, f"windows of {summed}: at most {MAX_SUMMED}"),
        (
            problem.has_ceil and window.pad_code != 0,
            "padding of codes that counts, and windows that end behind it",
        ),
        (
            max(0 if problem.is_global else reach, max(window.N, *window.pitches, 0) * MAX_BLOCK)
            > MAX_OFFSET,
            "offsets in a tile beyond 32 bits",
        ),
    )
    return next((reason for is_so, reason in reasons if is_so), None) or why_not_epilogue(window)


def kernel_of(problem: PoolProblem, config: PixelTile) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. Images, H and W do not enter it."""
    types = kernel_types(problem.window)
    del types["w_ptr"]
    sizes = (("M", "i32"), ("HW", "i32")) if problem.is_global else size_arguments()
    fixed: dict[str, Any] = {
        "N": problem.window.N,
        **({} if problem.is_global else _geometry(problem)),
        "IS_MAX": problem.kind == "max",
        **epilogue_constants(problem.window),
        **({} if problem.is_global else _pitches(problem)),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
    }
    return KernelSpec(
        family="pool",
        function="global_pool" if problem.is_global else "pool",
        signature=(*types.items(), *sizes),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=config.num_warps,
        num_stages=1,
        is_exact=needs_exact(problem.window.epilogue, problem.window.outputs),
    )


def _pitches(problem: PoolProblem) -> dict[str, Any]:
    window = problem.window
    return {"X_PITCH": window.x_pitch or window.N, **pitch_constants(window, window.pitches)}


def _geometry(problem: PoolProblem) -> dict[str, Any]:
    window = problem.window
    return {
        "R": window.R,
        "S": window.S,
        "STRIDES": window.strides,
        "PADS": window.pads,
        "PAD_CODE": window.pad_code,
        "DILATIONS": window.dilations,
        "IS_INSIDE": problem.is_inside,
        "COUNTS_PADDING": problem.counts_padding,
        "WIDTH": PACKED if problem.is_packed else 1,
    }
