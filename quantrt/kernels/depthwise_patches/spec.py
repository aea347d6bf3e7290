# SPDX-License-Identifier: Apache-2.0
"""y[images, P, Q, N] = epilogue(conv(x[images, H, W, N], w[R, S, N])), each channel by itself, in patches.

Sums are exact for codes, and in the order of the taps for float16, in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.kernels.conv2d.spec import ConvProblem, kernel_types, size_arguments
from quantrt.kernels.depthwise import spec as depthwise
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES, WARP, epilogue_constants
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.kernel import KernelSpec, pointers_of

__all__ = [
    "MAX_PATCHES",
    "PatchTile",
    "begun_lines",
    "is_dot",
    "is_held",
    "kernel_of",
    "line_width",
    "patches_of",
    "shared_columns",
    "vector_of",
    "why_not",
]

WORD_BYTES = 4
"""What a thread reads at once: the channels of its patch."""

MAX_HELD = 50
"""Weights of a thread that stay in registers."""

MAX_PATCHES = 2**31 - 1
"""With those that fill up the last program."""


@dataclass(frozen=True)
class PatchTile:
    """What one thread has, and how many threads a program has.

    Attributes:
        rows, columns: of output pixels.
    """

    rows: int
    columns: int
    num_warps: int

    @property
    def name(self) -> str:
        """As tactics are named: "patches 14x4 w2"."""
        return f"patches {self.rows}x{self.columns} w{self.num_warps}"


def why_not(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute the problem, in one phrase; None when it can."""
    reason = depthwise.why_not(problem)
    if reason:
        return reason
    vector = vector_of(problem)
    if problem.dilations[0] != 1:
        return f"lines of a window {problem.dilations[0]} apart"
    if problem.N % vector:
        return f"{problem.N} channels are no multiple of {vector}"
    if problem.pixels * problem.N // vector >= MAX_PATCHES // 2:
        return f"so many pixels that {MAX_PATCHES} patches may not be enough"
    return None


def vector_of(problem: ConvProblem) -> int:
    """Channels of a thread."""
    return WORD_BYTES // ELEMENT_BYTES[problem.dtype]


def line_width(problem: ConvProblem, columns: int) -> int:
    """Pixels of a line of x from the first to the last that windows of so many columns read."""
    return (columns - 1) * problem.strides[1] + (problem.S - 1) * problem.dilations[1] + 1


def begun_lines(problem: ConvProblem) -> int:
    """Output lines to which a line of x adds that is behind the one where they began."""
    return (problem.R - 1) // problem.strides[0]


def patches_of(problem: ConvProblem, tile: PatchTile) -> int:
    """Of all images and channels: threads."""
    images, height, width = problem.output
    return images * -(-height // tile.rows) * -(-width // tile.columns) * (problem.N // vector_of(problem))


def kernel_of(problem: ConvProblem, tile: PatchTile) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. Images, H and W do not enter it."""
    types = kernel_types(problem)
    vector = vector_of(problem)
    fixed = {
        "N": problem.N,
        "R": problem.R,
        "S": problem.S,
        "STRIDES": problem.strides,
        "PADS": problem.pads,
        "PAD_CODE": problem.pad_code,
        "DILATION": problem.dilations[1],
        **epilogue_constants(problem),
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "VECTOR": vector,
        "BLOCK": WARP * tile.num_warps,
        "IS_HELD": is_held(problem),
        "IS_DOT": is_dot(problem),
    }
    return KernelSpec(
        family="depthwise_patches",
        function="depthwise_patches",
        signature=(*types.items(), *size_arguments()),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=tile.num_warps,
        num_stages=1,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )


def is_held(problem: ConvProblem) -> bool:
    """Whether a thread's weights stay in registers."""
    return problem.R * problem.S * vector_of(problem) <= MAX_HELD


def is_dot(problem: ConvProblem) -> bool:
    """Whether the taps of a line are added by one instruction."""
    return problem.dtype == "int8" and problem.S <= WORD_BYTES and problem.dilations[1] == 1


def shared_columns(problem: ConvProblem) -> int:
    """Output columns whose taps are among the same four columns of x, where those are added at once."""
    return (WORD_BYTES - problem.S) // problem.strides[1] + 1
