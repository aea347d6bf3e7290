# SPDX-License-Identifier: Apache-2.0
"""Which tiles of a product of few rows are worth timing."""

from __future__ import annotations

from dataclasses import replace

from quantrt.gpu import GpuFacts
from quantrt.kernels.few_rows.spec import stage_bytes, steps_of
from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.gemm_hopper.spec import HopperTile, weight_run_of

__all__ = ["MAX_ROWS", "configs"]

MAX_ROWS = 512
"""Beyond, products fill the GPU with larger tiles."""

BLOCKS = ((64, 64), (64, 32), (64, 128))

OTHER_SHARED_BYTES = 2048
"""Of barriers, of what is exchanged between warps, and of the runtime."""


def configs(problem: GemmProblem, device: GpuFacts) -> tuple[HopperTile, ...]:
    """Tiles of 64 rows, those first of which the device's multiprocessors hold all at once.

    Each with so many stages that a multiprocessor holds one program and no more, which spreads programs
    evenly though others still run, and with fewer, that leave room for a second one. No more than there are
    blocks of K. Four threads finish a row, each with a run of columns.
    """
    found: list[HopperTile] = []
    for block_m, block_n in BLOCKS:
        one = HopperTile(block_m, block_n, 1)
        half = (device.shared_memory_bytes // 2 - OTHER_SHARED_BYTES) // stage_bytes(one)
        counts = [min(max(2, steps_of(problem)), count) for count in (half + 2, half)]
        is_wide_enough = 4 * weight_run_of(problem, one) <= block_n
        if is_wide_enough and block_n < 2 * problem.columns:
            found += [replace(one, stages=count) for count in dict.fromkeys(counts) if count >= 2]
    return tuple(sorted(found, key=lambda tile: _rounds(problem, tile, device)))


def _rounds(problem: GemmProblem, tile: HopperTile, device: GpuFacts) -> int:
    """How often the multiprocessors are filled with programs."""
    beside = min(4, device.shared_memory_bytes // (tile.stages * stage_bytes(tile)))
    tiles = -(-problem.M // tile.block_m) * -(-problem.columns // tile.block_n)
    return -(-tiles // (device.multiprocessors * beside))
