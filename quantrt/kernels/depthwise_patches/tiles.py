# SPDX-License-Identifier: Apache-2.0
"""Which patches are worth timing for a depthwise convolution on a device, and what they should take.

Large ones read less for every pixel, small ones are more: where pixels are few, threads are.
"""

from __future__ import annotations

import itertools
import math

from quantrt.gpu import LAUNCH_US, GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.conv2d.tiles import FILL_US
from quantrt.kernels.depthwise.tiles import cost
from quantrt.kernels.depthwise_patches.spec import (
    PatchTile,
    begun_lines,
    is_dot,
    is_held,
    line_width,
    patches_of,
    shared_columns,
    vector_of,
)
from quantrt.kernels.epilogue.spec import WARP
from quantrt.kernels.expression.spec import flops_of

__all__ = ["configs", "estimate_us"]

MAX_CONFIGS = 6
ROWS = (1, 2, 4, 7, 14, 28)
COLUMNS = (2, 4, 7, 8)
WARPS = (2, 4)
SMALLEST = ((1, 2),)
"""Lines and columns of a patch; warps of a program; the patch where none fits."""

MAX_REGISTERS = 176
OTHER_REGISTERS = 30
"""Of a thread; of them for places and masks."""

PATCH_INSTRUCTIONS = 300.0
READ_INSTRUCTIONS = 3.0
CODE_INSTRUCTIONS = 3.25
WORD_INSTRUCTIONS = 2.0
PIXEL_INSTRUCTIONS = 5.0
"""Of a patch: where it is, constants. Of each read: its mask, its address. Of each code: to a float, or into
a word of four. Of each pixel that is stored: its mask, its address. Counted in machine code for 9.0."""
SLOW = 2.0
"""Times that an instruction on bytes takes one of float32."""

RESIDENT_WARPS = 12
"""Of a multiprocessor, by their registers."""


def configs(problem: ConvProblem, device: GpuFacts) -> tuple[PatchTile, ...]:
    """At most 6 patches, the most promising first, each with the better number of warps."""

    def promise(tile: PatchTile) -> tuple[float, str]:
        return estimate_us(problem, tile, device), tile.name

    patches = [patch for patch in itertools.product(ROWS, COLUMNS) if _fits(problem, *patch)]
    best = (min((PatchTile(*patch, warps) for warps in WARPS), key=promise) for patch in patches or SMALLEST)
    return tuple(sorted(best, key=promise)[:MAX_CONFIGS])


def _fits(problem: ConvProblem, rows: int, columns: int) -> bool:
    _, height, width = problem.output
    is_needed = (rows < 2 * height or rows == ROWS[0]) and (columns < 2 * width or columns == COLUMNS[0])
    return is_needed and _registers(problem, columns) <= MAX_REGISTERS


def _registers(problem: ConvProblem, columns: int) -> int:
    """Of a thread, about: sums, weights, a line of x and the next one, as floats or in words."""
    vector = vector_of(problem)
    pixels = problem.strides[0] * line_width(problem, columns)
    weights = problem.R * (shared_columns(problem) if is_dot(problem) else problem.S * is_held(problem))
    floats = 0 if is_dot(problem) else pixels
    sums = (begun_lines(problem) + 1) * columns
    return vector * (sums + weights + floats) + 2 * pixels + OTHER_REGISTERS


def estimate_us(problem: ConvProblem, tile: PatchTile, device: GpuFacts) -> float:
    """Predicted time: launch + memory and instructions, whichever is longer, softened + the ends of waves."""
    instructions = _instructions(problem, tile)
    patches = max(patches_of(problem, tile), 1)
    # One float32 instruction is half a fused multiply-add.
    rate = 0.5e6 * device.fp32_tflops / device.multiprocessors
    threads = WARP * tile.num_warps
    busiest = math.ceil(math.ceil(patches / threads) / device.multiprocessors)
    math_us = busiest * threads * instructions / rate
    # A program alone leaves most of a multiprocessor idle.
    resident = max(1, RESIDENT_WARPS // tile.num_warps)
    alone_us = FILL_US + 2 * instructions * WARP / rate * tile.num_warps / 4
    memory_us = cost(problem, device).size_bytes / device.memory_bytes_per_us
    bounds = (memory_us, math_us, math.ceil(busiest / resident) * alone_us)
    return LAUNCH_US + math.pow(sum(bound**4 for bound in bounds), 0.25) + FILL_US


def _instructions(problem: ConvProblem, tile: PatchTile) -> float:
    """Of one thread."""
    vector, taps = vector_of(problem), problem.R * problem.S
    reads = problem.strides[0] * line_width(problem, tile.columns)
    reads += 0 if is_held(problem) else taps
    if is_dot(problem):
        words = problem.strides[0] * math.ceil(tile.columns / shared_columns(problem))
        sums = SLOW * vector * (WORD_INSTRUCTIONS * words + tile.columns * problem.R)
    else:
        to_float = CODE_INSTRUCTIONS if problem.dtype == "int8" else 1.0
        sums = vector * (to_float * reads + tile.columns * taps)
    stored = len(problem.tensors) + len(problem.outputs)
    epilogue = vector * flops_of(problem.epilogue, problem.outputs) + PIXEL_INSTRUCTIONS * stored
    steps = tile.rows + begun_lines(problem)
    return PATCH_INSTRUCTIONS + steps * (READ_INSTRUCTIONS * reads + sums + tile.columns * epilogue)
