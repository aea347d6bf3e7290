# SPDX-License-Identifier: Apache-2.0
"""Which tiles are worth timing for a pool on a device, and what they should cost.

A pool is bound by memory, or by the instructions that unpack and compare, some per tap and element.
"""

from __future__ import annotations

import itertools
import math

from quantrt.gpu import LAUNCH_US, GpuFacts
from quantrt.kernels.conv2d.tiles import FILL_US, LOAD_US
from quantrt.kernels.cost import Cost
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES, WARP
from quantrt.kernels.expression.spec import flops_of
from quantrt.kernels.pixel_tile import PixelTile
from quantrt.kernels.pool.spec import PoolProblem

__all__ = ["configs", "cost", "estimate_us"]

MAX_CONFIGS = 6
MAX_ALIKE = 2
BLOCKS_M = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BLOCKS_N = (16, 32, 64, 128, 256, 512)
MIN_ELEMENTS = 4
MAX_ELEMENTS = 32

LOAD_BYTES = 16
READ_BYTES_PER_US = 80_000.0
"""Into one multiprocessor: three quarters of 64 bytes a clock at 1.7 GHz."""

SECTORS_BYTES = 64
"""Two sectors of 32 bytes: what memory hands over at a time."""

TAP_INSTRUCTIONS = {"int8": 3.0, "float16": 2.0, "bfloat16": 2.0, "float32": 1.0}
PACKED_INSTRUCTIONS = 1.5
"""Of each tap and element: unpack, compare or add; codes that are compared four at a time are shifted only.
Compiled for 9.0, a 3x3 maximum of codes takes 2.5 instructions for a tap and element with all that is around
it, and took 4.5 where codes were unpacked."""
LOAD_INSTRUCTIONS = 10.0
"""Of each load of up to 16 bytes: address, mask."""
STORE_INSTRUCTIONS = 6.0
"""Of each element stored or read by the epilogue, beside the expression: conversions."""


def cost(problem: PoolProblem, device: GpuFacts) -> Cost:
    """max(instructions / peak, bytes / bandwidth); one comparison or addition for each tap."""
    window = problem.window
    elements = window.pixels * window.N
    stored = sum(ELEMENT_BYTES[dtype] for dtype in (*window.tensors, *window.outputs))
    constants = sum(operand.kind == "constant" for operand in window.epilogue.operands)
    read = window.images * window.H * window.W * window.N * ELEMENT_BYTES[window.dtype]
    size_bytes = read + elements * stored + 4 * window.N * constants
    flops = elements * window.R * window.S
    math_us, memory_us = flops / (0.5e6 * device.fp32_tflops), size_bytes / device.memory_bytes_per_us
    return Cost(flops, size_bytes, max(math_us, memory_us), is_bound_by_memory=memory_us >= math_us)


def configs(problem: PoolProblem, device: GpuFacts) -> tuple[PixelTile, ...]:
    """At most 6 tiles, the most promising first; no more than two with as many elements for each thread."""
    window = problem.window
    tiles = (PixelTile(m, n, warps) for m, n, warps in itertools.product(BLOCKS_M, BLOCKS_N, (1, 2, 4, 8)))
    fitting = (
        tile
        for tile in tiles
        if MIN_ELEMENTS <= tile.elements <= MAX_ELEMENTS
        and (tile.block_n < 2 * window.N or tile.block_n == BLOCKS_N[0])
    )
    ranked = sorted(fitting, key=lambda tile: (estimate_us(problem, tile, device), *_preference(tile)))
    chosen: list[PixelTile] = []
    for tile in ranked:
        alike = sum(tile.elements == other.elements for other in chosen)
        if alike < MAX_ALIKE and len(chosen) < MAX_CONFIGS:
            chosen.append(tile)
    return tuple(chosen)


def _preference(tile: PixelTile) -> tuple[int, int, str]:
    """Among tiles that should take as long: four warps, then wide ones, which read whole lines of memory."""
    return abs(tile.num_warps - 4), -tile.block_n, tile.name


def estimate_us(problem: PoolProblem, config: PixelTile, device: GpuFacts) -> float:
    """Predicted time: launch + memory, caches, instructions and latency, the longest of them, softened."""
    window = problem.window
    rows = window.images if problem.is_global else math.ceil(max(window.pixels, 1) / config.block_m)
    programs = max(rows, 1) * math.ceil(window.N / config.block_n)
    turns = math.ceil(window.H * window.W / config.block_m) if problem.is_global else 1
    taps = turns if problem.is_global else window.R * window.S
    # One float32 instruction is half a fused multiply-add.
    rate = 0.5e6 * device.fp32_tflops / device.multiprocessors
    resident = max(1, 32 // config.num_warps)
    busiest = math.ceil(programs / device.multiprocessors)
    threads = WARP * config.num_warps
    work = threads * config.elements * _instructions(problem, config, taps) / rate
    # A program alone leaves most of a multiprocessor idle: its chain of loads takes as long.
    alone_us = FILL_US + LOAD_US * math.ceil(turns / 4) + work * max(1.0, 4 / config.num_warps)
    # Caches fetch whole sectors; a pixel's channels that are fewer leave part of them for other programs.
    width_bytes = min(config.block_n, window.N) * ELEMENT_BYTES[window.dtype]
    partial = math.sqrt(max(1.0, SECTORS_BYTES / width_bytes))
    memory_us = partial * cost(problem, device).size_bytes / device.memory_bytes_per_us
    read_us = (
        busiest * config.block_m * config.block_n * taps * ELEMENT_BYTES[window.dtype] / READ_BYTES_PER_US
    )
    bounds = (memory_us, read_us, busiest * work, math.ceil(busiest / resident) * alone_us)
    return LAUNCH_US + math.pow(sum(bound**4 for bound in bounds), 0.25) + FILL_US


def _instructions(problem: PoolProblem, config: PixelTile, taps: int) -> float:
    """Of one thread, for each of its elements."""
    window = problem.window
    vector = min(config.elements, math.gcd(window.N, LOAD_BYTES // ELEMENT_BYTES[window.dtype]))
    is_packed = problem.is_packed and not problem.is_global
    per_tap = PACKED_INSTRUCTIONS if is_packed else TAP_INSTRUCTIONS[window.dtype]
    per_tap += LOAD_INSTRUCTIONS / vector
    stored = len(window.tensors) + len(window.outputs)
    last = flops_of(window.epilogue, window.outputs) + STORE_INSTRUCTIONS * stored
    return taps * per_tap + (last / config.block_m if problem.is_global else last)
