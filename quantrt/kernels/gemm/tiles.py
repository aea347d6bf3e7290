# SPDX-License-Identifier: Apache-2.0
"""Which tiles are worth timing for a product on a device, and what they should cost.

The estimate only ranks tiles against each other: the time of the multiprocessor that has most of them, by
its arithmetic, by its share of L2, and by the latency of each tile; never below the time that memory takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from quantrt.dtypes import FP8
from quantrt.gpu import LAUNCH_US, GpuFacts
from quantrt.kernels.cost import Cost
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.kernels.expression.spec import flops_of
from quantrt.kernels.gemm.spec import MANY_STORED, MOST_TERMS, GemmProblem, TileConfig

__all__ = ["configs", "cost", "estimate_us"]

MAX_CONFIGS = 10
MAX_CONFIGS_PER_TILE = 2

REACHED_MATH = {"int8": 0.7, "float8_e4m3fn": 0.6, "float16": 0.8, "bfloat16": 0.8, "float32": 0.6}
"""Of the data sheet's peaks, by products of 8192 cubed on an H200. float32 goes without tensor cores; its
share is a guess."""

L2_BYTES_PER_FLOP = 0.16
"""Bandwidth of L2 against the float32 peak: two thirds of 64 bytes for 256 operations of a multiprocessor.
A product of 8192 cubed at 810 TFLOP/s in tiles of 128 x 256 takes 9.5 TB/s of an H200's L2."""

SYNC_ON_HOPPER = 0.6
"""What mma.sync reaches of the rate of wgmma on compute capability 9.0, about."""

FILL_US = 1.0
STEP_US = 0.6
BARRIER_US = 0.03
"""Latencies: of first loads and last stores of a tile; of one load from memory, about 1000 cycles; of the
barriers around one step along K."""

SLOWEST_RATIO = 1.6
"""A tile that is estimated to take longer than this times the best is not timed."""

MAX_ACCUMULATORS = 128
"""Registers of a thread for the accumulator: with more than these the machine code spills; half of them where
the epilogue keeps many tensors at hand."""

HOPPER = 90
MAX_PROMOTED = 2
MAX_PROMOTED_ACCUMULATORS = 64
"""Of a thread that has two of each."""

OTHER_SHARED_BYTES = 1024
"""Of barriers and the runtime, beside the buffers."""

REGISTERS = 65536
OTHER_REGISTERS = 56
MAX_WARPS = 64
"""Of a multiprocessor; and what a thread needs beside the accumulator, about."""


def cost(problem: GemmProblem, device: GpuFacts) -> Cost:
    """max(flops / peak, bytes / bandwidth), both peaks as kernels reach them."""
    M, N, K = problem.M, problem.N, problem.K
    flops = 2 * M * problem.columns * K
    stored = sum(ELEMENT_BYTES[dtype] for dtype in (*problem.blocks, *problem.outputs))
    constants = sum(operand.kind == "constant" for operand in problem.epilogue.operands)
    size_bytes = (
        (M * K + problem.columns * K) * ELEMENT_BYTES[problem.dtype] + M * N * stored + 4 * N * constants
    )
    time_us = max(flops / _math_rate(problem, device), size_bytes / device.memory_bytes_per_us)
    return Cost(flops, size_bytes, time_us)


def configs(problem: GemmProblem, device: GpuFacts) -> tuple[TileConfig, ...]:
    """At most 10 tiles, the most promising first; all of them fit the device.

    Of FP8 on Hopper two more, that promote, first where sums in the tensor cores are not precise enough.
    """
    times = {config: estimate_us(problem, config, device) for config in _legal(problem, device)}
    # Where memory is what takes the time, all tiles seem equal: the one that leaves most time to spare.
    ranked = sorted(
        times,
        key=lambda config: (
            times[config],
            _busy_us(problem, config, device),
            _oddity(problem, config),
            config.name,
        ),
    )
    chosen: list[TileConfig] = []
    for config in ranked:
        same = sum((c.block_m, c.block_n) == (config.block_m, config.block_n) for c in chosen)
        is_near = times[config] <= SLOWEST_RATIO * times[ranked[0]]
        if same < MAX_CONFIGS_PER_TILE and is_near and len(chosen) < MAX_CONFIGS:
            chosen.append(config)
    if problem.dtype == FP8.name and device.capability == HOPPER:
        narrow = [config for config in ranked if config.accumulators <= MAX_PROMOTED_ACCUMULATORS]
        promoted = [replace(config, promotes=True) for config in narrow[:MAX_PROMOTED]]
        chosen = [*promoted, *chosen] if problem.K > MOST_TERMS else [*chosen, *promoted]
    return tuple(chosen)


def estimate_us(problem: GemmProblem, config: TileConfig, device: GpuFacts) -> float:
    """Predicted time of the kernel with this tile."""
    memory_us = cost(problem, device).size_bytes / device.memory_bytes_per_us
    return LAUNCH_US + max(_busy_us(problem, config, device), memory_us)


def _busy_us(problem: GemmProblem, config: TileConfig, device: GpuFacts) -> float:
    """How long the multiprocessor with most tiles is busy."""
    tiles = _ceil(problem.M, config.block_m) * _ceil(problem.columns, config.block_n)
    busiest = _ceil(max(tiles, 1), device.multiprocessors)
    resident = _resident(problem, config, device)
    steps = _ceil(problem.K, config.block_k)
    # The rates are the whole device's; a multiprocessor has its share of them.
    share = device.multiprocessors
    elements = config.block_m * config.block_n
    math_us = (
        share * 2 * elements * config.block_k / (_math_rate(problem, device) * _efficiency(config, device))
    )
    loaded = (config.block_m + config.block_n) * config.block_k * ELEMENT_BYTES[problem.dtype]
    load_us = share * loaded / (1e6 * device.fp32_tflops * L2_BYTES_PER_FLOP)
    wait_us = STEP_US / max(config.num_stages - 1, 1)
    # A float32 instruction is half a fused multiply-add; with each tensor come a few to load, convert, store.
    instructions = flops_of(problem.epilogue, problem.outputs) + 6 * (
        len(problem.outputs) + len(problem.blocks)
    )
    outputs = elements // 2 if problem.is_gated else elements
    epilogue_us = share * outputs * instructions / (0.5e6 * device.fp32_tflops)
    # What one program waits for, the products of another hide.
    hidden = min(resident, busiest)
    step_us = max(math_us, load_us, wait_us / hidden) + BARRIER_US / hidden
    tile_us = steps * step_us + epilogue_us / (1 + 0.5 * (hidden - 1))
    return busiest * tile_us + FILL_US * _ceil(busiest, resident)


def _legal(problem: GemmProblem, device: GpuFacts) -> Iterator[TileConfig]:
    size = ELEMENT_BYTES[problem.dtype]
    k_bytes = (64, 128, 256) if problem.dtype != "float32" else (64,)
    for block_m, block_n, k, num_warps, num_stages in product(
        _blocks(problem.M), _blocks(problem.columns), k_bytes, (4, 8), (2, 3, 4, 5)
    ):
        config = TileConfig(block_m, block_n, k // size, num_warps, num_stages)
        if _is_worth(problem, config, device):
            yield config


def _blocks(size: int) -> tuple[int, ...]:
    """Tile sizes along an axis: no more than its next power of two, but 32 always."""
    return tuple(block for block in (16, 32, 64, 128, 256) if block <= 32 or block < 2 * size)


def _is_worth(problem: GemmProblem, config: TileConfig, device: GpuFacts) -> bool:
    least = 32 if config.num_warps == 8 else 4
    is_long = len(problem.outputs) + len(problem.blocks) >= MANY_STORED
    most = MAX_ACCUMULATORS // 2 if is_long else MAX_ACCUMULATORS
    if problem.dtype == "float32":
        least, most = 1, 32
    k_bytes = config.block_k * ELEMENT_BYTES[problem.dtype]
    steps = _ceil(problem.K, config.block_k)
    return (
        least <= config.accumulators <= most
        and config.shared_bytes(problem.dtype) + OTHER_SHARED_BYTES <= device.shared_memory_bytes
        and (config.block_k < 2 * problem.K or k_bytes == 64)
        and (k_bytes <= 128 or config.block_m + config.block_n <= 128)
        and min(steps, 3) <= max(config.num_stages, 2) <= max(steps, 2)
    )


def _oddity(problem: GemmProblem, config: TileConfig) -> tuple[int, int]:
    """Distance from what usually wins, among tiles with one estimate: 128 bytes along K, 4 stages."""
    return abs(config.block_k * ELEMENT_BYTES[problem.dtype] - 128), abs(config.num_stages - 4)


def _resident(problem: GemmProblem, config: TileConfig, device: GpuFacts) -> int:
    """Programs that a multiprocessor holds at once."""
    threads = 32 * config.num_warps
    registers = config.accumulators + OTHER_REGISTERS
    by_memory = device.shared_memory_bytes // config.shared_bytes(problem.dtype)
    return max(1, min(by_memory, REGISTERS // (threads * registers), MAX_WARPS // config.num_warps))


def _efficiency(config: TileConfig, device: GpuFacts) -> float:
    """Share of the reachable rate: narrow tiles read more from shared memory for every product."""
    narrow = {16: 0.35, 32: 0.6, 64: 0.8, 128: 0.95, 256: 1.0}
    shape = narrow[config.block_n] * min(1.0, narrow[config.block_m] + 0.2)
    return shape if device.capability != 90 or config.block_m >= 64 else shape * SYNC_ON_HOPPER


def _math_rate(problem: GemmProblem, device: GpuFacts) -> float:
    """Operations per microsecond that the device reaches."""
    peaks = {"int8": device.int8_tops, FP8.name: device.fp8_tflops, "float32": device.fp32_tflops}
    return 1e6 * peaks.get(problem.dtype, device.fp16_tflops) * REACHED_MATH[problem.dtype]


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
