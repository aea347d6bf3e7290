# SPDX-License-Identifier: Apache-2.0
"""Which tiles are worth timing for a convolution on a device, and what they should cost.

The estimate ranks tiles against each other: the multiprocessor with the most of them is bound by products, by
bytes from L2, by load instructions or by latency; memory bounds the whole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from quantrt.gpu import LAUNCH_US, GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem, TileConfig
from quantrt.kernels.cost import Cost
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES, WARP

__all__ = ["FILL_US", "LOAD_US", "configs", "configs_of_taps", "cost", "estimate_us"]

MAX_CONFIGS = 10
MAX_CONFIGS_PER_TILE = 2

REACHED_MATH = {"int8": 0.7, "float16": 0.8, "bfloat16": 0.8}
"""Of the data sheet's peaks, by products of 8192 cubed on an H200."""

L2_BYTES_PER_US = 80_000.0
"""From L2 into one multiprocessor's shared memory: three quarters of 64 bytes a clock at 1.7 GHz."""

LOADS_PER_US = 16_000.0
"""Load instructions, counted by thread, of one multiprocessor: 32 a clock, two thirds of them addresses."""

PACKED_LOADS = 2
"""The address and the mask of a load from a block that spans taps take about twice as long."""

FILL_US = 0.8
LOAD_US = 0.6
SYNC_US = 0.05
"""Latencies: of a tile before its first product and behind its last, of a load (about 1000 cycles), and of a
turn of the loop beside its products: a wait, a barrier."""

BLOCKS_M = (32, 64, 128, 256)
BLOCKS_N = (16, 32, 64, 128, 256)
BLOCKS_K = {"int8": (32, 64, 128, 256), "float16": (32, 64, 128), "bfloat16": (32, 64, 128)}
COPY_BYTES = 4
"""Copies that run ahead of the products take at least that many neighbouring bytes."""

MIN_ACCUMULATORS = 4
MAX_ACCUMULATORS = 128
"""Of a thread; with more the machine code spills."""

LIGHT_ACCUMULATORS = 32
"""Of a thread that takes about 80 registers in all, so that a multiprocessor holds 24 warps: in 1x1 layers
of 64 to 256 channels with a residual, compiled for 9.0, one with 128 takes 220 registers and more."""

LONG_BLOCK_BYTES = 128

REGISTERS = 65536
OTHER_REGISTERS = 72
MAX_WARPS = 48
"""Of a multiprocessor (48 on 8.6 and 8.9, 64 on data-centre chips, where registers end earlier); and what a
thread needs beside the accumulator, about."""


def cost(problem: ConvProblem, device: GpuFacts) -> Cost:
    """max(flops / peak, bytes / bandwidth), both peaks as kernels reach them."""
    flops = 2 * problem.pixels * problem.N * problem.depth
    stored = sum(ELEMENT_BYTES[dtype] for dtype in (*problem.tensors, *problem.outputs))
    constants = sum(operand.kind == "constant" for operand in problem.epilogue.operands)
    read = problem.images * problem.H * problem.W * problem.C + problem.N * problem.depth
    size_bytes = (
        read * ELEMENT_BYTES[problem.dtype] + problem.pixels * problem.N * stored + 4 * problem.N * constants
    )
    math_us = flops / (_math_rate(problem, device) * device.multiprocessors)
    memory_us = size_bytes / device.memory_bytes_per_us
    return Cost(flops, size_bytes, max(math_us, memory_us), memory_us > math_us)


def configs(problem: ConvProblem, device: GpuFacts) -> tuple[TileConfig, ...]:
    """At most 10 tiles, the most promising first; all fit the device.

    Each with its best number of stages, and no more than two that cut M and N alike. Where memory bounds the
    whole, all differ in how they cut, and every other one is light: what counts then is how many programs
    wait at once, of which the estimate knows little.
    """
    return _chosen(problem, _legal(problem, device), device)


def configs_of_taps(problem: ConvProblem, device: GpuFacts) -> tuple[TileConfig, ...]:
    """The same of tiles that add up one tap at once."""
    tiles = (config for config in _legal(problem, device) if not config.is_packed)
    return _chosen(problem, tiles, device)


def _chosen(problem: ConvProblem, tiles: Iterable[TileConfig], device: GpuFacts) -> tuple[TileConfig, ...]:
    """See `configs`."""
    best: dict[TileConfig, tuple[float, str, TileConfig]] = {}
    for config in tiles:
        row = (estimate_us(problem, config, device), config.name, config)
        size = replace(config, num_stages=0)
        best[size] = min(best.get(size, row), row, key=lambda item: item[:2])
    ranked = [config for _, _, config in sorted(best.values(), key=lambda item: item[:2])]
    most = MAX_CONFIGS_PER_TILE
    if cost(problem, device).is_bound_by_memory:
        light = [config for config in ranked if config.accumulators <= LIGHT_ACCUMULATORS]
        pairs = itertools.zip_longest(ranked, light)
        ranked = list(dict.fromkeys(config for pair in pairs for config in pair if config is not None))
        most = 1
    chosen: list[TileConfig] = []
    for config in ranked:
        same = sum((x.block_m, x.block_n) == (config.block_m, config.block_n) for x in chosen)
        if same < most and len(chosen) < MAX_CONFIGS:
            chosen.append(config)
    return tuple(chosen)


def estimate_us(problem: ConvProblem, config: TileConfig, device: GpuFacts) -> float:
    """Predicted time: launch + the greatest of memory, throughput and latency + the ends of every wave.

    The greatest is softened (their 4-norm), for things that overlap still get in each other's way.
    """
    tiles = math.ceil(max(problem.pixels, 1) / config.block_m) * math.ceil(problem.N / config.block_n)
    busiest = math.ceil(tiles / device.multiprocessors)
    waves = math.ceil(busiest / _resident(problem, config, device))
    steps, step_us = _steps(problem, config), _step_us(problem, config, device)
    ahead = config.num_stages - 1 if _is_copied_ahead(problem) else 1
    latency_us = waves * steps * max(LOAD_US / ahead, step_us + SYNC_US)
    memory_us = cost(problem, device).size_bytes / device.memory_bytes_per_us
    bounds = (memory_us, busiest * steps * step_us, latency_us)
    return LAUNCH_US + math.pow(sum(bound**4 for bound in bounds), 0.25) + waves * FILL_US


def _legal(problem: ConvProblem, device: GpuFacts) -> Iterator[TileConfig]:
    """Every tile that is not larger than the problem and fits registers and shared memory."""
    taps = problem.R * problem.S
    blocks_k = BLOCKS_K[problem.dtype]
    for is_packed in (False, True):
        if is_packed and taps == 1:
            continue
        sizes = (
            _up_to(problem.pixels, BLOCKS_M),
            _up_to(problem.N, BLOCKS_N),
            _up_to(problem.depth if is_packed else problem.C, blocks_k),
        )
        for m, n, k, warps, stages in itertools.product(*sizes, (4, 8), (2, 3, 4, 5)):
            config = TileConfig(m, n, k, warps, stages, is_packed)
            if is_packed and problem.C % k == 0:  # no block would span taps
                continue
            fits = config.shared_bytes(problem.dtype) <= device.shared_memory_bytes
            if fits and MIN_ACCUMULATORS <= config.accumulators <= _most_accumulators(
                problem, config, device
            ):
                yield config


def _most_accumulators(problem: ConvProblem, config: TileConfig, device: GpuFacts) -> int:
    """Of a thread, so that it does not spill."""
    depth_bytes = config.block_k * ELEMENT_BYTES[problem.dtype]
    if depth_bytes > LONG_BLOCK_BYTES:  # for small tiles, which wait for memory more than they multiply
        return MAX_ACCUMULATORS // 4
    # Addresses of blocks that span taps take registers; so do operands, of mma.sync but not of wgmma.
    is_deep = config.num_warps == 4 and depth_bytes == LONG_BLOCK_BYTES and device.capability != 90
    return MAX_ACCUMULATORS // 2 if config.is_packed or is_deep else MAX_ACCUMULATORS


def _up_to(size: int, blocks: tuple[int, ...]) -> tuple[int, ...]:
    """The blocks up to the next power of two of `size`; the smallest always."""
    return tuple(block for block in blocks if block == blocks[0] or block < 2 * size)


def _steps(problem: ConvProblem, config: TileConfig) -> int:
    """Turns of the loop over a sum."""
    if config.is_packed:
        return math.ceil(problem.depth / config.block_k)
    return problem.R * problem.S * math.ceil(problem.C / config.block_k)


def _step_us(problem: ConvProblem, config: TileConfig, device: GpuFacts) -> float:
    """One turn of the loop on one multiprocessor: products, bytes from L2, load instructions."""
    products = 2 * config.block_m * config.block_n * config.block_k
    items = (config.block_m + config.block_n) * config.block_k
    return max(
        products / (_math_rate(problem, device) * _efficiency(config, device)),
        items * ELEMENT_BYTES[problem.dtype] / L2_BYTES_PER_US,
        items / _vector_items(problem) * (PACKED_LOADS if config.is_packed else 1) / LOADS_PER_US,
    )


def _vector_items(problem: ConvProblem) -> int:
    """Elements that one load takes: neighbours in memory, 16 bytes at most."""
    return math.gcd(problem.C, 16 // ELEMENT_BYTES[problem.dtype])


def _is_copied_ahead(problem: ConvProblem) -> bool:
    return _vector_items(problem) * ELEMENT_BYTES[problem.dtype] >= COPY_BYTES


def _efficiency(config: TileConfig, device: GpuFacts) -> float:
    """Share of the reachable rate: small tiles read more from shared memory for every product.

    On 9.0 tiles of fewer than 64 rows go without wgmma.
    """
    narrow = math.pow(min(1.0, config.block_n / 64), 0.75)
    short = 1.0 if config.block_m >= 64 else 0.5 if device.capability == 90 else 0.7
    return narrow * short


def _resident(problem: ConvProblem, config: TileConfig, device: GpuFacts) -> int:
    """Programs that a multiprocessor holds at once."""
    threads = WARP * config.num_warps
    registers = config.accumulators + OTHER_REGISTERS
    by_memory = device.shared_memory_bytes // config.shared_bytes(problem.dtype)
    return max(1, min(by_memory, REGISTERS // (threads * registers), MAX_WARPS // config.num_warps))


def _math_rate(problem: ConvProblem, device: GpuFacts) -> float:
    """Operations per microsecond that one multiprocessor reaches."""
    peak = device.int8_tops if problem.dtype == "int8" else device.fp16_tflops
    return 1e6 * peak * REACHED_MATH[problem.dtype] / device.multiprocessors
