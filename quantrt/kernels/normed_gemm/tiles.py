# SPDX-License-Identifier: Apache-2.0
"""Which tiles of a product that normalizes its rows are worth timing."""

from __future__ import annotations

from dataclasses import replace

from quantrt.gpu import GpuFacts
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.kernels.gemm_hopper.spec import HopperTile
from quantrt.kernels.normed_gemm.spec import BLOCK_K_BYTES, NormedProblem

__all__ = ["configs"]

BLOCKS = ((64, 64), (64, 32), (64, 128))
OTHER_SHARED_BYTES = 2048
"""Of barriers, of what is exchanged between warps, and of the runtime."""


def configs(problem: NormedProblem, device: GpuFacts) -> tuple[HopperTile, ...]:
    """Tiles of 64 rows, those first of which the device's multiprocessors hold all at once.

    Each with as many stages as leave room for a second program on a multiprocessor, and with as many as a
    program has room for alone; no more than there are blocks of K.
    """
    found: list[HopperTile] = []
    for block_m, block_n in BLOCKS:
        one = HopperTile(block_m, block_n, 1)
        room = [device.shared_memory_bytes // count - OTHER_SHARED_BYTES for count in (2, 1)]
        counts = [min(_steps(problem), size // _stage_bytes(problem, one)) for size in room]
        if block_n < 2 * problem.product.N:
            found += [replace(one, stages=count) for count in dict.fromkeys(counts) if count >= 2]
    return tuple(sorted(found, key=lambda tile: _rounds(problem, tile, device)))


def _steps(problem: NormedProblem) -> int:
    """Blocks of K; two at least, which a ring has."""
    return max(2, -(-problem.product.K * ELEMENT_BYTES[problem.product.dtype] // BLOCK_K_BYTES))


def _stage_bytes(problem: NormedProblem, tile: HopperTile) -> int:
    return (tile.block_m + tile.block_n) * BLOCK_K_BYTES


def _rounds(problem: NormedProblem, tile: HopperTile, device: GpuFacts) -> int:
    """How often the multiprocessors are filled with programs."""
    beside = min(4, device.shared_memory_bytes // (tile.stages * _stage_bytes(problem, tile)))
    tiles = -(-problem.product.M // tile.block_m) * -(-problem.product.N // tile.block_n)
    return -(-tiles // (device.multiprocessors * beside))
