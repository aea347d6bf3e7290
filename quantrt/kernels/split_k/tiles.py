# SPDX-License-Identifier: Apache-2.0
"""Which cuts of a product's sums are worth timing on a device: none where its tiles fill it anyway.

A product with `splits` times as many columns and as much shorter sums has the same tiles, bytes and products
as the parts: its estimate is theirs. Adding them costs another launch, and reading them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from quantrt.gpu import LAUNCH_US, GpuFacts
from quantrt.kernels.conv2d import tiles as conv2d
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.conv2d.spec import TileConfig as ConvTile
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.kernels.gemm import tiles as gemm
from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.gemm.spec import TileConfig as GemmTile
from quantrt.kernels.split_k.spec import PART_BYTES, SplitConfig, rows_of
from quantrt.regions.expression import IDENTITY

__all__ = ["configs", "estimate_us"]

MAX_CONFIGS = 3
SLOWEST_RATIO = 2.0
"""How many are timed, and how much slower than the product as a whole they may be by their estimate."""

SPLITS = (2, 3, 4, 6, 8)
MAX_ROUNDS = 2
"""Programs for a multiprocessor: more parts than that cost more than they save."""

ADD_US = 1.0
"""Of the kernel that adds, beside its launch and its bytes."""


def configs(problem: ConvProblem | GemmProblem, device: GpuFacts) -> tuple[SplitConfig, ...]:
    """At most 3, the most promising first, of different tiles; none for float32.

    None either where the product as a whole has a tile for every multiprocessor.
    """
    found = _configs(problem, device)[:1] if problem.dtype != "float32" and rows_of(problem) else ()
    if not found or _tiles(problem, found[0]) >= device.multiprocessors:
        return ()
    limit_us = SLOWEST_RATIO * _whole_us(problem, found[0], device)
    best: dict[tuple[int, int], tuple[float, str, SplitConfig]] = {}
    for config in _legal(problem, device):
        size = config.tile.block_m, config.tile.block_n
        row = (estimate_us(problem, config, device), config.name, config)
        best[size] = min(best.get(size, row), row, key=lambda item: item[:2])
    ranked = sorted(best.values(), key=lambda item: item[:2])
    return tuple(config for time_us, _, config in ranked if time_us <= limit_us)[:MAX_CONFIGS]


def estimate_us(problem: ConvProblem | GemmProblem, config: SplitConfig, device: GpuFacts) -> float:
    """Predicted time of both kernels."""
    stored = sum(ELEMENT_BYTES[dtype] for dtype in (*problem.tensors, *problem.outputs))
    added = rows_of(problem) * problem.N * (PART_BYTES * config.splits + stored)
    part = _part(problem, config.splits)
    return _whole_us(part, config.tile, device) + LAUNCH_US + ADD_US + added / device.memory_bytes_per_us


def _whole_us(problem: ConvProblem | GemmProblem, tile: ConvTile | GemmTile, device: GpuFacts) -> float:
    """Of the product's own kernel."""
    if isinstance(problem, ConvProblem) and isinstance(tile, ConvTile):
        return conv2d.estimate_us(problem, tile, device)
    assert isinstance(problem, GemmProblem) and isinstance(tile, GemmTile)
    return gemm.estimate_us(problem, tile, device)


def _configs(
    problem: ConvProblem | GemmProblem, device: GpuFacts
) -> tuple[ConvTile, ...] | tuple[GemmTile, ...]:
    if isinstance(problem, ConvProblem):
        return conv2d.configs(problem, device)
    # Parts are short: their sums need no promotion.
    return tuple(tile for tile in gemm.configs(problem, device) if not tile.promotes)


def _legal(problem: ConvProblem | GemmProblem, device: GpuFacts) -> Iterator[SplitConfig]:
    """Cuts into parts of as many whole blocks, in tiles that suit the parts."""
    depth = problem.C if isinstance(problem, ConvProblem) else problem.K
    for splits in SPLITS:
        if depth % splits == 0:
            for tile in _configs(_part(problem, splits), device):
                programs = _tiles(problem, tile) * splits
                if _is_even(problem, tile, splits) and programs <= MAX_ROUNDS * device.multiprocessors:
                    yield SplitConfig(tile, splits)


def _is_even(problem: ConvProblem | GemmProblem, tile: ConvTile | GemmTile, splits: int) -> bool:
    if isinstance(problem, GemmProblem):
        return problem.K % (splits * tile.block_k) == 0
    steps = problem.R * problem.S * math.ceil(problem.C / tile.block_k)
    return isinstance(tile, ConvTile) and not tile.is_packed and steps % splits == 0


def _tiles(problem: ConvProblem | GemmProblem, tile: ConvTile | GemmTile) -> int:
    return math.ceil(rows_of(problem) / tile.block_m) * math.ceil(problem.N / tile.block_n)


def _part(problem: ConvProblem | GemmProblem, splits: int) -> ConvProblem | GemmProblem:
    """The product that has the tiles of all parts."""
    wide = replace(problem, N=problem.N * splits, epilogue=IDENTITY, tensors=(), outputs=("float32",))
    if isinstance(wide, ConvProblem):
        return replace(wide, C=wide.C // splits)
    return replace(wide, K=wide.K // splits)
