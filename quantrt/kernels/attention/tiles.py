# SPDX-License-Identifier: Apache-2.0
"""Which tiles are worth timing for attention on a device, and what they should cost."""

from __future__ import annotations

from collections.abc import Iterator

from quantrt.gpu import LAUNCH_US, GpuFacts
from quantrt.kernels.attention.spec import AttentionProblem, TileConfig
from quantrt.kernels.cost import Cost
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES

__all__ = ["NEAR_RATIO", "configs", "cost", "estimate_us"]

MAX_CONFIGS = 10

NEAR_RATIO = 1.1
"""Estimates that far apart do not tell tiles apart: those with more blocks on their way come first."""

MAX_UNPIPELINED = 2
"""Blocks of keys; of more, loading one while another is computed always pays."""

REACHED_MATH = 0.45
"""Of the data sheet's peak: cuDNN's 186 us for 2 samples of 10 heads of 64 and 4096 keys are 0.47 of that of
an H200 (docs/results/cuda-attention8-h200.md)."""

INSTRUCTIONS = 12
"""Of the softmax for one score, about: scale, mask, maximum, exponent, sum, conversion."""

FILL_US = 1.5
STEP_US = 0.7
"""Latencies: of first loads and last stores of a program; of one step, whose two products and softmax wait
for each other."""

MAX_REGISTERS = 176
"""Of a thread, for the result, the scores and the mask of a tile: with more the machine code spills."""

OTHER_REGISTERS = 48
REGISTERS = 65536
MAX_WARPS = 64
OTHER_SHARED_BYTES = 1024

TILES = ((16, 64, 4), (32, 64, 4), (64, 32, 4), (64, 64, 4), (64, 128, 4), (128, 32, 4), (128, 64, 4),
         (128, 64, 8), (128, 128, 8), (64, 256, 8))  # fmt: skip


def cost(problem: AttentionProblem, device: GpuFacts) -> Cost:
    """max(flops / peak, bytes / bandwidth), both peaks as kernels reach them."""
    B, H, S, T, D = problem.B, problem.H, problem.S, problem.T, problem.D
    flops = 4 * B * H * S * T * D // (2 if problem.is_causal else 1)
    size = ELEMENT_BYTES[problem.dtype]
    read = B * H * S * D * size + 2 * B * (H // problem.groups) * T * D * size
    mask = 0 if problem.mask == "none" else B * (S if problem.has_mask_rows else 1) * T * 2
    size_bytes = read + mask + B * H * S * D * sum(ELEMENT_BYTES[dtype] for dtype in problem.outputs)
    time_us = max(
        flops / (1e6 * device.fp16_tflops * REACHED_MATH),
        size_bytes / device.memory_bytes_per_us,
    )
    return Cost(flops, size_bytes, time_us)


def configs(problem: AttentionProblem, device: GpuFacts) -> tuple[TileConfig, ...]:
    """At most 10 tiles, the most promising first; all of them fit the device."""
    times = {config: estimate_us(problem, config, device) for config in _legal(problem, device)}
    near_us = NEAR_RATIO * min(times.values(), default=0.0)
    found = sorted(
        times, key=lambda config: (times[config] > near_us, -config.num_stages, times[config], config.name)
    )
    return tuple(found[:MAX_CONFIGS])


def estimate_us(problem: AttentionProblem, config: TileConfig, device: GpuFacts) -> float:
    """Predicted time of the kernel with these tiles."""
    tiles = problem.B * problem.H * -(-problem.S // config.block_m)
    resident = _resident(problem, config, device)
    busiest = -(-tiles // device.multiprocessors)
    steps = -(-problem.T // config.block_n) * (
        0.5 if problem.is_causal and problem.S > config.block_m else 1.0
    )
    share = device.multiprocessors
    scores = config.block_m * config.block_n
    math_us = share * 4 * scores * problem.block_d / (1e6 * device.fp16_tflops * REACHED_MATH)
    softmax_us = share * scores * INSTRUCTIONS / (0.5e6 * device.fp32_tflops)
    hidden = min(resident, busiest)
    step_us = max(math_us + softmax_us, STEP_US / hidden)
    busy_us = busiest * (steps * step_us) + FILL_US * -(-busiest // resident)
    return LAUNCH_US + max(busy_us, cost(problem, device).time_us)


def _legal(problem: AttentionProblem, device: GpuFacts) -> Iterator[TileConfig]:
    for block_m, block_n, num_warps in TILES:
        for num_stages in (1, 2, 3):
            config = TileConfig(block_m, block_n, num_warps, num_stages)
            is_needed = block_m <= 16 or block_m < 2 * problem.S
            if num_stages == 1:
                suits_length = problem.T <= MAX_UNPIPELINED * block_n
            else:
                suits_length = problem.T > (num_stages - 1) * block_n
            if is_needed and suits_length and _fits(problem, config, device):
                yield config


def _fits(problem: AttentionProblem, config: TileConfig, device: GpuFacts) -> bool:
    columns = problem.block_d + config.block_n * (2 if problem.has_mask_rows else 1)
    held = config.block_m * columns // config.threads
    is_wide = config.block_n <= 64 or config.block_n < 2 * problem.T
    return (
        is_wide
        and held <= MAX_REGISTERS
        and _shared_bytes(problem, config) + OTHER_SHARED_BYTES <= device.shared_memory_bytes
    )


def _shared_bytes(problem: AttentionProblem, config: TileConfig) -> int:
    """Of q, and of k and v for every stage."""
    rows = config.block_m + 2 * config.block_n * config.num_stages
    return rows * problem.block_d * ELEMENT_BYTES[problem.dtype]


def _resident(problem: AttentionProblem, config: TileConfig, device: GpuFacts) -> int:
    """Programs that a multiprocessor holds at once."""
    held = config.block_m * (problem.block_d + config.block_n) // config.threads + OTHER_REGISTERS
    by_registers = REGISTERS // (config.threads * min(held, 255))
    by_memory = device.shared_memory_bytes // _shared_bytes(problem, config)
    return max(1, min(by_registers, by_memory, MAX_WARPS // config.num_warps))
