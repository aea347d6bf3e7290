# SPDX-License-Identifier: Apache-2.0
"""Which tiles are worth timing for a convolution of few channels on a device, and what they should cost.

Windows overlap, so that memory and L2 are read little; what bounds a multiprocessor is its shared memory,
into which every window is copied whole and out of which it is multiplied.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from quantrt.gpu import LAUNCH_US, GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.conv2d.tiles import FILL_US, cost
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES, WARP
from quantrt.kernels.thin_conv2d.spec import PIXEL, TileConfig, line_width, output_size, window_lines

__all__ = ["bordered_bytes", "configs", "estimate_us", "programs_of"]

MAX_CONFIGS = 6
TILES = ((1, 64), (1, 128), (4, 16), (8, 8), (8, 16), (16, 16))
MAX_BLOCK_N = 128
MAX_ACCUMULATORS = 64
"""Of a thread, beside the addresses of its share of the windows; with more the machine code spills."""

MAX_COPIES = 32
COPY_BYTES = 8
"""Copies of a thread for one tile, each with an address: with more the machine code spills. And bytes of one,
at most: a pixel of float16, which is masked by itself, or two of codes."""

OTHER_REGISTERS = 104
REGISTERS = 65536
RESERVED_SHARED_BYTES = 1024
"""Of a thread beside the accumulator, about; of a multiprocessor; of a block, taken by the runtime."""

SHARED_BYTES_PER_US = 128 * 1.7e3 * 0.8
"""Of one multiprocessor: 128 bytes a clock at 1.7 GHz, four fifths of it."""

LOAD_US = 0.7
"""From the copy of a window to its arrival, about 1000 cycles."""

PRODUCT_ROWS = 64
"""One product of the tensor cores of 9.0 has that many rows, and reads the weights for each."""


def configs(problem: ConvProblem, device: GpuFacts) -> tuple[TileConfig, ...]:
    """At most 6 tiles, the most promising first; all fit the device."""
    return tuple(
        sorted(_legal(problem, device), key=lambda x: (estimate_us(problem, x, device), x.name))[:MAX_CONFIGS]
    )


def programs_of(problem: ConvProblem, config: TileConfig, device: GpuFacts) -> int:
    """Programs that the device holds at once."""
    registers = (config.accumulators + OTHER_REGISTERS) * WARP * config.num_warps
    by_memory = device.shared_memory_bytes // (config.shared_bytes(problem) + RESERVED_SHARED_BYTES)
    return device.multiprocessors * max(1, min(by_memory, REGISTERS // registers))


def bordered_bytes(problem: ConvProblem, config: TileConfig) -> int:
    """Of x with its borders, as it is copied for whole tiles."""
    P, Q = output_size(problem)
    first, count = window_lines(problem)[-1]
    lines = (math.ceil(P / config.tile_p) * config.tile_p - 1) * problem.strides[0] + first + count
    pixels = (math.ceil(Q / config.tile_q) * config.tile_q - 1) * problem.strides[1] * PIXEL
    elements = -(-(pixels + line_width(problem)) // 16) * 16
    return problem.images * lines * elements * ELEMENT_BYTES[problem.dtype]


def estimate_us(problem: ConvProblem, config: TileConfig, device: GpuFacts) -> float:
    """Predicted time: the copy of x, then the longer of what memory and what multiprocessors take."""
    P, Q = output_size(problem)
    columns = math.ceil(problem.N / config.block_n)
    tiles = problem.images * math.ceil(P / config.tile_p) * math.ceil(Q / config.tile_q) * columns
    rounds = math.ceil(tiles / programs_of(problem, config, device))
    resident = programs_of(problem, config, device) // device.multiprocessors
    tile_us = _tile_us(problem, config)
    busy_us = rounds * max(resident * tile_us, LOAD_US / (config.num_stages - 1))
    memory_us = cost(problem, device).size_bytes / device.memory_bytes_per_us
    copy_us = 2 * bordered_bytes(problem, config) / device.memory_bytes_per_us
    return 2 * LAUNCH_US + copy_us + FILL_US + math.hypot(busy_us, memory_us)


def _tile_us(problem: ConvProblem, config: TileConfig) -> float:
    """One tile alone on a multiprocessor, bound by shared memory."""
    depth = sum(count for _, count in window_lines(problem)) * line_width(problem)
    weights = math.ceil(config.pixels / PRODUCT_ROWS) * config.block_n
    products = (2 * config.pixels + weights) * depth * ELEMENT_BYTES[problem.dtype]
    stored = sum(ELEMENT_BYTES[dtype] for dtype in (*problem.tensors, *problem.outputs))
    return (products + 2 * config.pixels * config.block_n * stored) / SHARED_BYTES_PER_US


def _legal(problem: ConvProblem, device: GpuFacts) -> Iterator[TileConfig]:
    block_n = min(MAX_BLOCK_N, max(16, 1 << (problem.N - 1).bit_length()))
    for (tile_p, tile_q), num_warps, num_stages in itertools.product(TILES, (4, 8), (2, 3, 4)):
        config = TileConfig(tile_p, tile_q, block_n, num_warps, num_stages)
        is_wide = config.pixels >= PRODUCT_ROWS * num_warps // 4  # a warp group multiplies 64 rows
        has_registers = config.accumulators <= MAX_ACCUMULATORS and _copies(problem, config) <= MAX_COPIES
        taken = config.shared_bytes(problem) + RESERVED_SHARED_BYTES
        if is_wide and has_registers and taken <= device.shared_memory_bytes:
            yield config


def _copies(problem: ConvProblem, config: TileConfig) -> int:
    """Of one thread for one tile."""
    depth = sum(count for _, count in window_lines(problem)) * line_width(problem)
    size = ELEMENT_BYTES[problem.dtype]
    copy_bytes = math.gcd(COPY_BYTES, problem.strides[1] * PIXEL * size)
    return config.pixels * depth * size // (copy_bytes * WARP * config.num_warps)
