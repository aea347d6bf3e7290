# SPDX-License-Identifier: Apache-2.0
"""Which tiles of the kernel for compute capability 9.0 are worth timing for a product.

The estimate only ranks tiles against each other and against doing without. A multiprocessor takes its tiles
one behind the other; of two of them, the epilogue of one runs beside the products of the other. Where none
has two, its consumers share the one that it has.
"""

from __future__ import annotations

from dataclasses import replace

from quantrt.dtypes import FP8
from quantrt.gpu import LAUNCH_US, GpuFacts
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.kernels.expression.spec import flops_of
from quantrt.kernels.gemm.spec import MAX_SHORT_FLOPS, MOST_TERMS, GemmProblem
from quantrt.kernels.gemm.tiles import cost
from quantrt.kernels.gemm_hopper.spec import (
    HopperTile,
    fits_registers,
    makes_codes_of_tensors,
    shared_bytes,
    steps_of,
)

__all__ = ["configs", "estimate_us"]

TILES = (
    HopperTile(128, 128, 4),
    HopperTile(128, 128, 6),
    HopperTile(128, 160, 5),
    HopperTile(64, 128, 6),
    HopperTile(128, 64, 6),
    HopperTile(64, 64, 8),
)
PROMOTED_TILES = tuple(
    HopperTile(128, block_n, stages, is_shared=True, is_promoted=True)
    for block_n, stages in ((128, 6), (160, 5))
)
SLICED_BLOCKS = ((128, 256), (128, 128), (64, 128))
MAX_SLICED_STAGES = 8
"""Of tiles in slices: the whole of K of a tile stays in the ring until its last slice is finished."""

REACHED = {(128, 160): 1.0, (128, 128): 1.0, (64, 128): 0.85, (128, 64): 0.75, (64, 64): 0.6}
"""Of the rate of large products, by tile: smaller ones read more of shared memory and L2 for each."""

MAX_CONFIGS = 4
MAX_LOOPED = 2


LEAST_TILES_RATIO = 0.9
"""Tiles for a multiprocessor: with fewer, some have nothing to do, and programs that share one are faster."""

REACHED_MATH = {"int8": 0.69, "float8_e4m3fn": 0.75, "float16": 0.8, "bfloat16": 0.8}
"""Of the data sheet's peak, by large products."""

FILL_US = 1.5
TURN_US = 0.3
"""Latencies: of the first loads and the last stores; of handing over."""

SHARED_ROWS, SHARED_ROUNDS = 128, 2
"""Of a tile that two consumers share: each has the rows of one product at least. And tiles of a program up to
which that is tried: of more, one is better finished while the next is multiplied."""

OTHER_SHARED_BYTES = 1024
"""Of barriers and the runtime, beside the ring and the slots."""


def configs(problem: GemmProblem, device: GpuFacts) -> tuple[HopperTile, ...]:
    """At most 4 and one that is shared, the most promising first; none for a product that is too small.

    Where codes are made of sums and residuals, the best two in a loop come ahead of them, and where another
    end is long, behind them. Where K is short, tiles in slices come first. Of FP8 with more terms than the
    tensor cores add up precisely, tiles that are promoted come before all others.
    """
    shared = (replace(tile, is_shared=True) for tile in TILES if tile.block_m >= SHARED_ROWS)
    fitting = [
        tile
        for tile in (*TILES, *shared)
        if _is_worth(problem, tile, device)
        and (not tile.is_shared or _tiles(problem, tile) <= SHARED_ROUNDS * device.multiprocessors)
    ]
    ranked = sorted(fitting, key=lambda tile: estimate_us(problem, tile, device))
    alone = [tile for tile in ranked if not tile.is_shared][:MAX_CONFIGS]
    together = [tile for tile in ranked if tile.is_shared][:1]
    chosen = [tile for tile in ranked if tile in alone or tile in together]
    is_long = problem.dtype == FP8.name and problem.K > MOST_TERMS
    promoted = tuple(tile for tile in PROMOTED_TILES if is_long and _is_worth(problem, tile, device))
    first = (*promoted, *_sliced(problem, device))
    looped = tuple(replace(tile, is_looped=True) for tile in chosen[:MAX_LOOPED])
    if makes_codes_of_tensors(problem):
        return (*first, *looped, *chosen)
    is_heavy = flops_of(problem.epilogue, problem.outputs) > MAX_SHORT_FLOPS
    return (*first, *chosen, *(looped if is_heavy and not problem.tensors and not problem.is_gated else ()))


def _is_worth(problem: GemmProblem, tile: HopperTile, device: GpuFacts) -> bool:
    """Whether a tile fits, and there are enough of them."""
    return (
        LEAST_TILES_RATIO * device.multiprocessors <= _tiles(problem, tile)
        and fits_registers(problem, tile)
        and tile.block_n < 2 * problem.columns
        and shared_bytes(problem, tile) + OTHER_SHARED_BYTES <= device.shared_memory_bytes
    )


def _sliced(problem: GemmProblem, device: GpuFacts) -> tuple[HopperTile, ...]:
    """Tiles in slices, with as many stages as fit; none for a gate, or where two tiles' do not."""
    found = []
    for block_m, block_n in SLICED_BLOCKS:
        one = HopperTile(block_m, block_n, 1, is_sliced=True)
        stages = (device.shared_memory_bytes - OTHER_SHARED_BYTES) // shared_bytes(problem, one)
        tile = replace(one, stages=min(MAX_SLICED_STAGES, stages))
        fills = _tiles(problem, tile) >= LEAST_TILES_RATIO * device.multiprocessors
        if fills and block_n < 2 * problem.columns and tile.stages >= 2 * steps_of(problem):
            found.append(tile)
    return () if problem.is_gated else tuple(found)


def estimate_us(problem: GemmProblem, tile: HopperTile, device: GpuFacts) -> float:
    """Predicted time of the kernel with this tile."""
    elements = tile.block_m * tile.block_n
    rounds = -(-_tiles(problem, tile) // device.multiprocessors)
    peaks = {"int8": device.int8_tops, "float8_e4m3fn": device.fp8_tflops}
    rate = 1e6 * peaks.get(problem.dtype, device.fp16_tflops) * REACHED_MATH[problem.dtype]
    rate *= REACHED[tile.block_m, tile.block_n]
    product_us = device.multiprocessors * 2 * elements * problem.K / rate
    stored = sum(ELEMENT_BYTES[dtype] for dtype in (*problem.outputs, *problem.blocks))
    instructions = flops_of(problem.epilogue, problem.outputs) + 2 * stored + 2
    outputs = elements // 2 if problem.is_gated else elements
    finish_us = device.multiprocessors * outputs * instructions / (0.5e6 * device.fp32_tflops)
    busy_us = rounds * max(product_us + TURN_US, (product_us + finish_us) / 2) + finish_us
    if tile.is_shared:
        busy_us = rounds * (product_us + finish_us / 2)
    return LAUNCH_US + FILL_US + max(busy_us, cost(problem, device).time_us)


def _tiles(problem: GemmProblem, tile: HopperTile) -> int:
    return -(-problem.M // tile.block_m) * -(-problem.columns // tile.block_n)
