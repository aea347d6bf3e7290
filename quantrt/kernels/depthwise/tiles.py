# SPDX-License-Identifier: Apache-2.0
"""Which tiles are worth timing for a depthwise convolution on a device, and what they should cost.

Such a convolution is bound by memory, or by the instructions that unpack and add: some per tap and element,
and its epilogue.
"""

from __future__ import annotations

import itertools
import math

from quantrt.gpu import LAUNCH_US, GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.conv2d.tiles import FILL_US
from quantrt.kernels.cost import Cost
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES, WARP
from quantrt.kernels.expression.spec import flops_of
from quantrt.kernels.pixel_tile import PixelTile

__all__ = ["configs", "cost", "estimate_us"]

MAX_CONFIGS = 8
BLOCKS_M = (4, 8, 16, 32, 64, 128)
BLOCKS_N = (16, 32, 64, 128, 256)
MIN_ACCUMULATORS = 4
MAX_ACCUMULATORS = 32

LOAD_BYTES = 16
SECTORS_BYTES = 64
"""Two sectors of 32 bytes: what memory hands over at a time."""

TAP_INSTRUCTIONS = 2.0
"""Of each tap and element: unpack, multiply and add."""
WEIGHT_INSTRUCTIONS = 1.5
"""Of each weight and thread: load, unpack."""
LOAD_INSTRUCTIONS = 10.0
"""Of each load of up to 16 bytes: address, mask."""
STORE_INSTRUCTIONS = 6.0
"""Of each element stored or read by the epilogue, beside the expression: conversions."""


def cost(problem: ConvProblem, device: GpuFacts) -> Cost:
    """max(flops / peak, bytes / bandwidth); flops are those of float32 units, two per tap."""
    elements = problem.pixels * problem.N
    taps = problem.R * problem.S
    stored = sum(ELEMENT_BYTES[dtype] for dtype in (*problem.tensors, *problem.outputs))
    constants = sum(operand.kind == "constant" for operand in problem.epilogue.operands)
    read = problem.images * problem.H * problem.W * problem.N + problem.N * taps
    size_bytes = read * ELEMENT_BYTES[problem.dtype] + elements * stored + 4 * problem.N * constants
    flops = 2 * elements * taps
    math_us, memory_us = flops / (1e6 * device.fp32_tflops), size_bytes / device.memory_bytes_per_us
    return Cost(flops, size_bytes, max(math_us, memory_us))


def configs(problem: ConvProblem, device: GpuFacts) -> tuple[PixelTile, ...]:
    """At most 8 tiles, the most promising first."""
    tiles = (PixelTile(m, n, warps) for m, n, warps in itertools.product(BLOCKS_M, BLOCKS_N, (2, 4, 8)))
    fitting = (
        tile
        for tile in tiles
        if MIN_ACCUMULATORS <= tile.elements <= MAX_ACCUMULATORS
        and (tile.block_n < 2 * problem.N or tile.block_n == BLOCKS_N[0])
    )
    ranked = sorted(fitting, key=lambda tile: (estimate_us(problem, tile, device), tile.name))
    return tuple(ranked[:MAX_CONFIGS])


def estimate_us(problem: ConvProblem, config: PixelTile, device: GpuFacts) -> float:
    """Predicted time: launch + memory and instructions, whichever is longer, softened + the ends of waves."""
    tiles = math.ceil(max(problem.pixels, 1) / config.block_m) * math.ceil(problem.N / config.block_n)
    taps = problem.R * problem.S
    vector = min(config.elements, math.gcd(problem.N, LOAD_BYTES // ELEMENT_BYTES[problem.dtype]))
    rows = config.elements / vector  # that a thread has use for each weight in
    per_tap = TAP_INSTRUCTIONS + LOAD_INSTRUCTIONS / vector + WEIGHT_INSTRUCTIONS / rows
    stored = len(problem.tensors) + len(problem.outputs)
    per_element = taps * per_tap + flops_of(problem.epilogue, problem.outputs) + STORE_INSTRUCTIONS * stored
    # One float32 instruction is half a fused multiply-add.
    rate = 0.5e6 * device.fp32_tflops / device.multiprocessors
    resident = max(1, 32 // config.num_warps)
    busiest = math.ceil(tiles / device.multiprocessors)
    math_us = busiest * config.block_m * config.block_n * per_element / rate
    # A program alone leaves most of a multiprocessor idle: its chain of loads and sums takes as long.
    alone_us = FILL_US + 2 * config.elements * per_element * WARP * config.num_warps / (4 * WARP) / rate
    # Caches fetch whole sectors; a pixel's channels that are fewer leave part of them for other programs.
    width_bytes = min(config.block_n, problem.N) * ELEMENT_BYTES[problem.dtype]
    partial = math.sqrt(max(1.0, SECTORS_BYTES / width_bytes))
    memory_us = partial * cost(problem, device).size_bytes / device.memory_bytes_per_us
    bounds = (memory_us, math_us, math.ceil(busiest / resident) * alone_us)
    return LAUNCH_US + math.pow(sum(bound**4 for bound in bounds), 0.25) + FILL_US
