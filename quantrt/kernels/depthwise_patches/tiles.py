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
    extent,
    is_dot,
    is_held,
    patches_of,
    shared_columns,
    vector_of,
)
from quantrt.kernels.epilogue.spec import WARP
from quantrt.kernels.expression.spec import flops_of

__all__ = ["configs", "estimate_us"]

MAX_CONFIGS = 4
ROWS = (1, 2, 4)
COLUMNS = (2, 4, 7)
WARPS = (2, 4)
SMALLEST = ((1, 2),)
"""Lines and columns of a patch; warps of a program; the patch where none fits."""

MAX_REGISTERS = 128
"""Of a thread, as they are counted here; compiled for 9.0 it has up to 168."""
MAX_STEPS = 1024
"""Multiplications of a thread by taps: all are unrolled, and more take long to compile."""

PATCH_INSTRUCTIONS = 180.0
READ_INSTRUCTIONS = 3.0
CODE_INSTRUCTIONS = 3.25
WORD_INSTRUCTIONS = 2.0
PIXEL_INSTRUCTIONS = 5.0
"""Of a patch: where it is, constants. Of each read: its mask, its address. Of each code: to a float, or into
a word of four. Of each pixel that is stored: its mask, its address. Counted in machine code for 9.0."""
SLOW = 2.0
"""Times that an instruction on bytes takes one of float32."""

RESIDENT_WARPS = 16
"""Of a multiprocessor, by their registers."""


def configs(problem: ConvProblem, device: GpuFacts) -> tuple[PatchTile, ...]:
    """At most 4 patches, the most promising first, each with the better number of warps."""

    def promise(tile: PatchTile) -> tuple[float, str]:
        return estimate_us(problem, tile, device), tile.name

    patches = [patch for patch in itertools.product(ROWS, COLUMNS) if _fits(problem, *patch)]
    best = (min((PatchTile(*patch, warps) for warps in WARPS), key=promise) for patch in patches or SMALLEST)
    return tuple(sorted(best, key=promise)[:MAX_CONFIGS])


def _fits(problem: ConvProblem, rows: int, columns: int) -> bool:
    _, height, width = problem.output
    is_needed = (rows < 2 * height or rows == ROWS[0]) and (columns < 2 * width or columns == COLUMNS[0])
    is_short = rows * columns * problem.R * problem.S <= MAX_STEPS
    return is_needed and is_short and _registers(problem, rows, columns) <= MAX_REGISTERS


def _registers(problem: ConvProblem, rows: int, columns: int) -> int:
    """Of a thread, about: sums, weights, a line of x and the next one, as floats or in words."""
    line = extent(columns, problem.S, problem.strides[1], problem.dilations[1])
    if is_dot(problem):
        words = shared_columns(problem)
        return vector_of(problem) * (rows * columns + problem.R * words + -(-columns // words)) + 2 * line
    weights = problem.R * problem.S if is_held(problem) else problem.S
    return vector_of(problem) * (rows * columns + weights + 2 * line)


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
    alone_us = FILL_US + 2 * instructions * threads / (4 * WARP) * WARP / rate
    memory_us = cost(problem, device).size_bytes / device.memory_bytes_per_us
    bounds = (memory_us, math_us, math.ceil(busiest / resident) * alone_us)
    return LAUNCH_US + math.pow(sum(bound**4 for bound in bounds), 0.25) + FILL_US


def _instructions(problem: ConvProblem, tile: PatchTile) -> float:
    """Of one thread."""
    vector, taps = vector_of(problem), problem.R * problem.S
    pixels = tile.rows * tile.columns
    lines = extent(tile.rows, problem.R, problem.strides[0], problem.dilations[0])
    reads = lines * extent(tile.columns, problem.S, problem.strides[1], problem.dilations[1])
    reads += taps if is_held(problem) else taps * tile.rows
    if is_dot(problem):
        words = lines * math.ceil(tile.columns / shared_columns(problem))
        sums = SLOW * vector * (WORD_INSTRUCTIONS * words + pixels * problem.R)
    else:
        to_float = CODE_INSTRUCTIONS if problem.dtype == "int8" else 1.0
        sums = vector * (to_float * reads + pixels * taps)
    stored = len(problem.tensors) + len(problem.outputs)
    epilogue = vector * flops_of(problem.epilogue, problem.outputs) + PIXEL_INSTRUCTIONS * stored
    return PATCH_INSTRUCTIONS + reads * READ_INSTRUCTIONS + sums + pixels * epilogue
