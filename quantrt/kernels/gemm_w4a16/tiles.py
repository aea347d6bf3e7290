# SPDX-License-Identifier: Apache-2.0
"""Which tiles and cuts of sums are worth timing for a weight in 4 bits, and what they should cost.

The estimate only ranks them: the time of the multiprocessor that has most programs, by its products, its
instructions, its share of L2, and the latency of each step; never below the time that memory takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from quantrt.gpu import LAUNCH_US, GpuFacts
from quantrt.kernels.cost import Cost
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES, WARP
from quantrt.kernels.gemm.spec import TileConfig
from quantrt.kernels.gemm.tiles import (
    FILL_US,
    MAX_WARPS,
    OTHER_REGISTERS,
    OTHER_SHARED_BYTES,
    REACHED_MATH,
    REGISTERS,
    STEP_US,
)
from quantrt.kernels.gemm_w4a16.spec import DIGITS, MAX_GROUPS, MIN_DEPTH, GroupedProblem
from quantrt.kernels.split_k.spec import PART_BYTES, SplitConfig

__all__ = ["configs", "cost", "estimate_us", "shared_bytes"]

MAX_CONFIGS = 6
MAX_CONFIGS_PER_TILE = 2
SLOWEST_RATIO = 1.6
"""How many are timed, how many of one size, and how much slower than the best they may be estimated."""

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
MAX_ROUNDS = 8
"""Programs for a multiprocessor: more parts than that cost more than they save."""

BLOCK_US = 0.2
"""That the four products of a block wait for each other and for their codes, on an H200."""

LANES = 128
WARP_INTERVAL = 2
"""Threads that a multiprocessor serves at once; times that between two instructions of a warp, about."""

L2_BYTES_PER_FLOP = 0.08
"""Bandwidth of L2 against the float32 peak, by copies of a few rows: 5 TB/s of an H200."""

MAX_ACCUMULATORS = 32
"""Registers of a thread for the accumulator; the sums of a group take as many, and decoded codes the rest."""

CODE_INSTRUCTIONS = 1.1
STEP_INSTRUCTIONS = 80
"""For a code, 9 for 8 of them; for a warp and a step: addresses, copies and barriers, as on 9.0."""


def cost(problem: GroupedProblem, device: GpuFacts) -> Cost:
    """max(flops / peak, bytes / bandwidth), both peaks as kernels reach them."""
    M, N, K = problem.M, problem.N, problem.K
    flops = 2 * M * problem.columns * K
    stored = sum(ELEMENT_BYTES[dtype] for dtype in (*problem.tensors, *problem.outputs))
    factors = -(-K // problem.group_size) * (4 + 2 * problem.has_zeros)
    size_bytes = 2 * M * K + problem.columns * (K // 2 + factors) + M * N * stored
    return Cost(flops, size_bytes, max(flops / _math_rate(device), size_bytes / device.memory_bytes_per_us))


def configs(problem: GroupedProblem, device: GpuFacts) -> tuple[SplitConfig, ...]:
    """At most 6, the most promising first; all of them fit the device."""
    times = {config: estimate_us(problem, config, device) for config in _legal(problem, device)}
    ranked = sorted(times, key=lambda one: (times[one], one.splits, -one.tile.num_stages, one.name))
    chosen: list[SplitConfig] = []
    for config in ranked:
        same = sum(_size(other) == _size(config) for other in chosen)
        is_new = all(_cut(other) != _cut(config) for other in chosen)
        is_near = times[config] <= SLOWEST_RATIO * times[ranked[0]]
        if is_new and same < MAX_CONFIGS_PER_TILE and is_near and len(chosen) < MAX_CONFIGS:
            chosen.append(config)
    return tuple(chosen)


def estimate_us(problem: GroupedProblem, config: SplitConfig, device: GpuFacts) -> float:
    """Predicted time of the kernel, and of the one that adds parts."""
    memory_us = cost(problem, device).size_bytes / device.memory_bytes_per_us
    whole_us = LAUNCH_US + max(_busy_us(problem, config, device), memory_us)
    if config.splits == 1:
        return whole_us
    parts = 2 * problem.M * problem.N * config.splits * PART_BYTES  # written, and read again
    return whole_us + LAUNCH_US + parts / device.memory_bytes_per_us


def _busy_us(problem: GroupedProblem, config: SplitConfig, device: GpuFacts) -> float:
    """How long the multiprocessor with most programs is busy."""
    tile, share = config.tile, device.multiprocessors
    busiest = _ceil(max(_tiles(problem, config) * config.splits, 1), share)
    steps = _ceil(_ceil(problem.K, tile.block_k), config.splits)
    resident = min(_resident(problem, config, device), busiest)
    elements, groups = tile.block_m * tile.block_n, tile.block_k // problem.group_size
    codes, threads = tile.block_n * tile.block_k, WARP * tile.num_warps
    # The rates are the whole device's; a multiprocessor has its share of them.
    instruction_us = 2 * share / (1e6 * device.fp32_tflops)
    instructions = CODE_INSTRUCTIONS * codes + groups * elements + STEP_INSTRUCTIONS * threads
    issue_us = instructions * instruction_us
    math_us = share * 2 * elements * tile.block_k / _math_rate(device)
    loaded = codes // 2 + 2 * tile.block_m * tile.block_k
    load_us = share * loaded / (1e6 * device.fp32_tflops * L2_BYTES_PER_FLOP)
    # A warp has a quarter of the multiprocessor at most, and waits for each of a block's products.
    alone_us = BLOCK_US + WARP_INTERVAL * instructions / threads * LANES * instruction_us
    wait_us = STEP_US / max(tile.num_stages - 1, 1)
    step_us = max(alone_us, wait_us, resident * max(math_us, issue_us, load_us))
    return _ceil(busiest, resident) * (steps * step_us + FILL_US)


def _legal(problem: GroupedProblem, device: GpuFacts) -> Iterator[SplitConfig]:
    for block_m, block_n, block_k, num_warps, num_stages in product(
        _blocks(problem.M, (16, 32, 64, 128)),
        _blocks(problem.columns, (32, 64, 128)),
        (64, 128, 256),
        (2, 4, 8),
        (2, 3, 4, 6),
    ):
        tile = TileConfig(block_m, block_n, block_k, num_warps, num_stages)
        steps = _ceil(problem.K, block_k)
        for splits in SPLITS if not problem.is_gated else (1,):
            config = SplitConfig(tile, splits)
            if steps % splits == 0 and _is_worth(problem, config, device):
                yield config


def _blocks(size: int, among: tuple[int, ...]) -> tuple[int, ...]:
    """Tile sizes along an axis: the smallest, and no more than the next power of two."""
    return tuple(block for block in among if block == among[0] or block < 2 * size)


def _is_worth(problem: GroupedProblem, config: SplitConfig, device: GpuFacts) -> bool:
    tile, groups = config.tile, config.tile.block_k // problem.group_size
    steps = _ceil(problem.K, tile.block_k) // config.splits
    tiles, share = _tiles(problem, config), device.multiprocessors
    return (
        1 <= groups <= MAX_GROUPS
        and tile.block_k >= DIGITS * MIN_DEPTH
        and tile.num_warps == _warps(tile.block_m, tile.block_n)
        and tile.accumulators <= MAX_ACCUMULATORS
        and shared_bytes(problem, config) + OTHER_SHARED_BYTES <= device.shared_memory_bytes
        and (tile.block_k < 2 * problem.K or tile.block_k == max(64, problem.group_size))
        and min(steps, 3) <= max(tile.num_stages, 2) <= max(steps, 2)
        and (config.splits == 1 or (tiles < share and tiles * config.splits <= MAX_ROUNDS * share))
    )


def _warps(block_m: int, block_n: int) -> int:
    """A warp for 16 rows of w as instructions have them, up to 4; more where a thread had too many sums."""
    by_sums = block_m * block_n // (WARP * MAX_ACCUMULATORS)
    return min(max(min(block_n // 16, 4), by_sums), 8)


def shared_bytes(problem: GroupedProblem, config: SplitConfig) -> int:
    """Of the pipeline's buffers: one of x, one of codes and the factors of their groups for every stage."""
    tile = config.tile
    factors = tile.block_k // problem.group_size * tile.block_n * (4 + 2 * problem.has_zeros)
    return tile.num_stages * (2 * tile.block_m * tile.block_k + tile.block_n * tile.block_k // 2 + factors)


def _resident(problem: GroupedProblem, config: SplitConfig, device: GpuFacts) -> int:
    """Programs that a multiprocessor holds at once."""
    threads = WARP * config.tile.num_warps
    registers = 2 * config.tile.accumulators + OTHER_REGISTERS
    by_memory = device.shared_memory_bytes // shared_bytes(problem, config)
    return max(1, min(by_memory, REGISTERS // (threads * registers), MAX_WARPS // config.tile.num_warps))


def _tiles(problem: GroupedProblem, config: SplitConfig) -> int:
    return _ceil(problem.M, config.tile.block_m) * _ceil(problem.columns, config.tile.block_n)


def _size(config: SplitConfig) -> tuple[int, int]:
    return config.tile.block_m, config.tile.block_n


def _cut(config: SplitConfig) -> tuple[int, ...]:
    """All but how many stages there are, which matters little."""
    return (*_size(config), config.tile.block_k, config.splits)


def _math_rate(device: GpuFacts) -> float:
    """Operations per microsecond that the device reaches."""
    return 1e6 * device.fp16_tflops * REACHED_MATH["float16"]


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
