# SPDX-License-Identifier: Apache-2.0
"""y[images, P, Q, N] = epilogue(conv(x[images, C, H, W], w[N, R, S, C])), C <= 4: what the kernel can do.

x is copied to lines of pixels of four channels, with its borders. int8 codes accumulate in int32,
exactly; float16 in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quantrt.gpu import GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem, kernel_types
from quantrt.kernels.conv2d.spec import why_not as why_not_conv2d
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES, POINTERS, WARP, epilogue_constants
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.kernel import KernelSpec, pointers_of

__all__ = [
    "PIXEL",
    "TileConfig",
    "border_kernel_of",
    "kernel_of",
    "line_width",
    "output_size",
    "why_not",
    "window_lines",
]

PIXEL = 4
"""Channels of x as it is copied."""

MIN_DEPTH = 32
"""Elements that the tensor cores add at once: 32 codes."""

MIN_WIDTH = 16
MAX_DEPTH = 512
"""Of a window's line, and of a whole window, in elements: weights of more leave no room for windows."""

LINE_UNIT = 16
"""Lines of x are that many elements long, or a multiple, so that copies of 8 bytes are aligned."""

BORDER_BLOCK = 256
"""Pixels of a line that one program copies."""


@dataclass(frozen=True)
class TileConfig:
    """How the product is cut.

    Attributes:
        tile_p, tile_q: output pixels of one tile, down and across.
        block_n: output channels that a program computes.
    """

    tile_p: int
    tile_q: int
    block_n: int
    num_warps: int
    num_stages: int

    @property
    def name(self) -> str:
        """As tactics are named: "8x16x64 w8 s3"."""
        return f"{self.tile_p}x{self.tile_q}x{self.block_n} w{self.num_warps} s{self.num_stages}"

    @property
    def pixels(self) -> int:
        """Of one tile."""
        return self.tile_p * self.tile_q

    @property
    def accumulators(self) -> int:
        """Of one thread."""
        return self.pixels * self.block_n // (WARP * self.num_warps)

    def shared_bytes(self, problem: ConvProblem) -> int:
        """Of the weights, the windows of every stage, and the tile on its way out."""
        depth = sum(count for _, count in window_lines(problem)) * line_width(problem)
        taken = (self.block_n + self.num_stages * self.pixels) * depth * ELEMENT_BYTES[problem.dtype]
        return taken + self.pixels * self.block_n * max(map(ELEMENT_BYTES.__getitem__, problem.outputs))


def why_not(problem: ConvProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    depth = sum(count for _, count in window_lines(problem)) * line_width(problem)
    reasons = (
        (problem.C > PIXEL, f"{problem.C} channels: at most {PIXEL}"),
        (problem.has_gaps, "pixels with gaps between"),
        (problem.dilations != (1, 1), "a dilated window: its taps are no neighbours"),
        (min(problem.pads) < 0, "borders that are cut off"),
        (problem.S * PIXEL <= MIN_WIDTH // 2, f"windows {problem.S} pixels wide: too few neighbours"),
        (depth > MAX_DEPTH, f"windows of {depth} elements: at most {MAX_DEPTH}"),
    )
    reason = next((reason for is_so, reason in reasons if is_so), None)
    return reason or why_not_conv2d(problem, device)


def line_width(problem: ConvProblem) -> int:
    """Elements of a line of a window, with zeros up to a power of two."""
    return max(MIN_WIDTH, 1 << (problem.S * PIXEL - 1).bit_length())


def window_lines(problem: ConvProblem) -> tuple[tuple[int, int], ...]:
    """(first, count) of the lines that are multiplied at once: counts are powers of two, falling.

    Together they are as many as a window has, or a few more where one line is too short.
    """
    unit = max(1, MIN_DEPTH // line_width(problem))
    left = -(-problem.R // unit) * unit
    found: list[tuple[int, int]] = []
    first = 0
    while left:
        count = 1 << (left.bit_length() - 1)
        found.append((first, count))
        first, left = first + count, left - count
    return tuple(found)


def output_size(problem: ConvProblem) -> tuple[int, int]:
    """Height and width of y, at least 0."""
    top, left, bottom, right = problem.pads
    P = (problem.H + top + bottom - problem.R) // problem.strides[0] + 1
    Q = (problem.W + left + right - problem.S) // problem.strides[1] + 1
    return max(0, P), max(0, Q)


def kernel_of(problem: ConvProblem, config: TileConfig) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. Images, H and W do not enter it."""
    types = kernel_types(problem)
    fixed: dict[str, Any] = {
        "N": problem.N,
        "S": problem.S,
        "TERMS": problem.depth,
        "STRIDES": problem.strides,
        **epilogue_constants(problem),
        "LINE_UNIT": LINE_UNIT,
        "WIDTH": line_width(problem),
        "LINES": window_lines(problem),
        "TILE_P": config.tile_p,
        "TILE_Q": config.tile_q,
        "BLOCK_N": config.block_n,
    }
    sizes = ("images", "P", "Q", "lines", "line_units")
    return KernelSpec(
        family="thin_conv2d",
        function="thin_conv2d",
        signature=(*types.items(), *((name, "i32") for name in sizes)),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )


def border_kernel_of(problem: ConvProblem) -> KernelSpec:
    """The kernel that copies x [images, C, H, W] of any strides with its borders."""
    pointer = POINTERS[problem.dtype]
    sizes = ("H", "W", "lines", "line_units", "stride_xn", "stride_xc", "stride_xh", "stride_xw")
    fixed = {
        "C": problem.C,
        "TOP": problem.pads[0],
        "LEFT": problem.pads[1],
        "PAD_CODE": problem.pad_code,
        "LINE_UNIT": LINE_UNIT,
        "BLOCK": BORDER_BLOCK,
    }
    return KernelSpec(
        family="thin_conv2d",
        function="add_borders",
        signature=(("x_ptr", pointer), ("y_ptr", pointer), *((name, "i32") for name in sizes)),
        aligned=frozenset({"y_ptr"}),
        constants=tuple(fixed.items()),
        num_warps=4,
        num_stages=1,
        is_exact=True,
    )
