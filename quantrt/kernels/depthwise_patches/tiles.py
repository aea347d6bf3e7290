# SPDX-License-Identifier: Apache-2.0
"""Which patches are worth timing for a depthwise convolution on a device, and what they should take.

Large ones read less for every pixel; of small ones there are more, and each has fewer lines to wait for.
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
WARPS = 2
SMALLEST = ((1, 2),)
"""Lines and columns of a patch; warps of a program; the patch where none fits."""

REGISTERS = 65536
MAX_REGISTERS = 176
OTHER_REGISTERS = 30
"""Of a multiprocessor; of a thread; of them for places and masks."""

PATCH_INSTRUCTIONS = 300.0
READ_INSTRUCTIONS = 3.0
CODE_INSTRUCTIONS = 3.25
WORD_INSTRUCTIONS = 2.0
PIXEL_INSTRUCTIONS = 5.0
"""Of a patch: where it is, constants. Of each read: its mask, its address. Of each code: to a float, or into
a word of four. Of each pixel that is stored: its mask, its address. Counted in machine code for 9.0."""
SLOW = 2.0
"""Times that an instruction on bytes takes one of float32."""

STEP_US = 0.5
RESIDENT_WARPS = 24
READ_AGAIN = 1.4
"""From one line to the next of a thread alone, which waits for what it reads; warps of a multiprocessor at a
time; bytes that go over the bus for each that is needed. Fitted to 105 times of MobileNetV2's layers on an
H200: the error is 12 % of a time."""


def configs(problem: ConvProblem, device: GpuFacts) -> tuple[PatchTile, ...]:
    """At most 6 patches, the most promising first."""

    def promise(tile: PatchTile) -> tuple[float, str]:
        return estimate_us(problem, tile, device), tile.name

    patches = [patch for patch in itertools.product(ROWS, COLUMNS) if _fits(problem, *patch)]
    tiles = (PatchTile(*patch, WARPS) for patch in patches or SMALLEST)
    return tuple(sorted(tiles, key=promise)[:MAX_CONFIGS])


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
    """Predicted time: launch + memory and the steps of threads, whichever is longer, softened."""
    steps = tile.rows + begun_lines(problem)
    # One float32 instruction is half a fused multiply-add.
    warp_us = WARP * device.multiprocessors / (0.5e6 * device.fp32_tflops)
    warps = max(patches_of(problem, tile), 1) / (WARP * device.multiprocessors)
    at_once = min(RESIDENT_WARPS, REGISTERS / (WARP * _registers(problem, tile.columns)))
    busy = min(warps, at_once)
    step_us = STEP_US + busy * _step_instructions(problem, tile.columns) * warp_us
    math_us = max(1.0, warps / at_once) * (steps * step_us + busy * PATCH_INSTRUCTIONS * warp_us)
    memory_us = READ_AGAIN * cost(problem, device).size_bytes / device.memory_bytes_per_us
    return LAUNCH_US + math.pow(memory_us**3 + math_us**3, 1 / 3) + FILL_US


def _step_instructions(problem: ConvProblem, columns: int) -> float:
    """Of one thread for one output line."""
    vector, taps = vector_of(problem), problem.R * problem.S
    reads = problem.strides[0] * line_width(problem, columns)
    reads += 0 if is_held(problem) else taps
    if is_dot(problem):
        words = problem.strides[0] * math.ceil(columns / shared_columns(problem))
        sums = SLOW * vector * (WORD_INSTRUCTIONS * words + columns * problem.R)
    else:
        to_float = CODE_INSTRUCTIONS if problem.dtype == "int8" else 1.0
        sums = vector * (to_float * reads + columns * taps)
    stored = len(problem.tensors) + len(problem.outputs)
    epilogue = vector * flops_of(problem.epilogue, problem.outputs) + PIXEL_INSTRUCTIONS * stored
    return READ_INSTRUCTIONS * reads + sums + columns * epilogue
