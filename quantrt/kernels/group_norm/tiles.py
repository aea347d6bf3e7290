# SPDX-License-Identifier: Apache-2.0
"""Which tiles are worth timing for a norm over groups, and what they should cost.

A norm is bound by memory: x is read twice, the second time mostly from L2, and every result is written once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from quantrt.gpu import LAUNCH_US, GpuFacts
from quantrt.kernels.conv2d.tiles import FILL_US, LOAD_US
from quantrt.kernels.cost import Cost
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.kernels.expression.spec import flops_of
from quantrt.kernels.group_norm.spec import (
    SUM_TILES,
    GroupNormProblem,
    TileConfig,
    block_of,
    part_rows,
    sum_rows,
)

__all__ = ["configs", "cost", "estimate_us", "parts_of"]

MAX_EACH = 3
"""Tiles of either way."""

BLOCKS_M = (4, 8, 16, 32, 64, 128, 256)
BLOCKS_N = (16, 32, 64, 128, 256)
WARPS = (4, 8)
MIN_ELEMENTS = 4
MAX_ELEMENTS = 32
"""Of a thread in one tile: two sums in float32 for each, and the epilogue of each."""

PREFERRED_ELEMENTS = 8

PROGRAMS = 4
"""Of the first step with 4 warps each, for each multiprocessor: enough loads are on their way. What each
program does once, its sums over a tile's rows above all, takes longer than the rest with twice as many."""

SUM_INSTRUCTIONS = 6.0
"""For each element that is summed: conversion, difference, mask, two sums, addresses."""
STORE_INSTRUCTIONS = 6.0
"""For each element stored or read by the epilogue, beside the expression: conversions."""

SECTOR_BYTES = 32
LINE_BYTES = 128
L2_SPEED = 1.5
"""How much faster than memory L2 is read again."""


def cost(problem: GroupNormProblem, device: GpuFacts) -> Cost:
    """max(instructions / peak, bytes / bandwidth), x read once."""
    elements = problem.images * problem.HW * problem.C
    written = sum(ELEMENT_BYTES[dtype] for dtype in problem.outputs)
    per_image = problem.per_image or (False,) * len(problem.tensors)
    read = sum(ELEMENT_BYTES[x] for x, small in zip(problem.tensors, per_image, strict=True) if not small)
    size_bytes = elements * (ELEMENT_BYTES[problem.dtype] + read + written)
    flops = elements * (8 + flops_of(problem.epilogue, problem.outputs))
    math_us, memory_us = flops / (0.5e6 * device.fp32_tflops), size_bytes / device.memory_bytes_per_us
    return Cost(flops, size_bytes, max(math_us, memory_us), is_bound_by_memory=memory_us >= math_us)


def configs(problem: GroupNormProblem, device: GpuFacts) -> tuple[TileConfig, ...]:
    """At most 3 tiles of either way, the most promising first."""
    fitting = list(_fitting(problem))
    ranked = sorted(fitting, key=lambda tile: (estimate_us(problem, tile, device), *_preference(tile)))
    chosen: list[TileConfig] = []
    for tile in ranked:
        alike = [other for other in chosen if other.is_whole == tile.is_whole]
        is_new = all(other.elements != tile.elements or other.block_n != tile.block_n for other in alike)
        if len(alike) < MAX_EACH and is_new:
            chosen.append(tile)
    return tuple(chosen)


def _preference(tile: TileConfig) -> tuple[int, int, str]:
    """Among tiles that should take as long: 8 elements for each thread, then wide ones."""
    return abs(tile.elements - PREFERRED_ELEMENTS), -tile.block_n, tile.name


def parts_of(config: TileConfig, device: GpuFacts) -> int:
    """How many programs the first step should have: the runner cuts any image by it."""
    return PROGRAMS * device.multiprocessors * 4 // config.num_warps


def estimate_us(problem: GroupNormProblem, config: TileConfig, device: GpuFacts) -> float:
    """Predicted time: launches, then memory, instructions and latency, the longest of them."""
    return _whole_us(problem, config, device) if config.is_whole else _parts_us(problem, config, device)


def _fitting(problem: GroupNormProblem) -> Iterator[TileConfig]:
    width = max(block_of(problem.depth), 4)
    for block_m, num_warps in itertools.product(BLOCKS_M, WARPS):
        whole = TileConfig(block_m, width, num_warps, is_whole=True)
        if MIN_ELEMENTS <= whole.elements <= MAX_ELEMENTS:
            yield whole
        for block_n in BLOCKS_N:
            parts = TileConfig(block_m, block_n, num_warps, is_whole=False)
            is_narrow = block_n < 2 * problem.C or block_n == BLOCKS_N[0]
            if MIN_ELEMENTS <= parts.elements <= MAX_ELEMENTS and is_narrow:
                yield parts


def _whole_us(problem: GroupNormProblem, config: TileConfig, device: GpuFacts) -> float:
    """One program for a group: few of them, each alone with its bytes, of which whole sectors are read."""
    size = ELEMENT_BYTES[problem.dtype]
    programs = problem.images * problem.groups
    turns = math.ceil(problem.HW / config.block_m)
    sectors = SECTOR_BYTES * (math.ceil(problem.depth * size / SECTOR_BYTES) + 1) / (problem.depth * size)
    lanes = config.block_n / problem.depth
    padded = problem.HW * problem.depth * lanes
    work_us = padded * (SUM_INSTRUCTIONS + _last(problem)) / _rate(device)
    alone_us = FILL_US + 2 * LOAD_US * math.ceil(turns / 4) + work_us * max(1.0, 4 / config.num_warps)
    rounds = math.ceil(programs / device.multiprocessors)
    memory_us = min(sectors, 4.0) * cost(problem, device).size_bytes / device.memory_bytes_per_us
    return LAUNCH_US + max(memory_us, rounds * work_us, alone_us * math.ceil(rounds / 4))


def _parts_us(problem: GroupNormProblem, config: TileConfig, device: GpuFacts) -> float:
    """Three launches; x twice, and a little beside it."""
    columns = math.ceil(problem.C / config.block_n)
    lanes = columns * config.block_n / problem.C
    read_bytes = problem.images * problem.HW * problem.C * ELEMENT_BYTES[problem.dtype]
    read_us = read_bytes / device.memory_bytes_per_us
    # Of a line of memory that is cut, other programs read the rest.
    width_bytes = min(config.block_n, problem.C) * ELEMENT_BYTES[problem.dtype]
    partial = math.sqrt(max(1.0, LINE_BYTES / width_bytes))
    wanted = parts_of(config, device)
    rows = part_rows(problem.HW, wanted // max(problem.images * columns, 1), config.block_m)
    programs = problem.images * columns * math.ceil(max(problem.HW, 1) / rows)
    rounds = math.ceil(programs / device.multiprocessors)
    sum_us = rows * config.block_n * SUM_INSTRUCTIONS / _rate(device)
    turns_us = LOAD_US * (1 + math.ceil(rows / (SUM_TILES * sum_rows(config)))) / 2
    first_us = FILL_US + max(partial * read_us, rounds * sum_us, turns_us)
    tiles = problem.images * columns * math.ceil(max(problem.HW, 1) / config.block_m)
    tile_us = config.block_m * config.block_n * _last(problem) / _rate(device)
    last_us = math.ceil(tiles / device.multiprocessors) * tile_us
    again_us = cost(problem, device).size_bytes / device.memory_bytes_per_us - read_us * (1 - 1 / L2_SPEED)
    merged_us = FILL_US + LOAD_US * 2
    return 3 * LAUNCH_US + first_us + merged_us + FILL_US + max(partial * lanes * again_us, last_us)


def _last(problem: GroupNormProblem) -> float:
    """Instructions for each element that is normalized."""
    stored = len(problem.tensors) + len(problem.outputs)
    return 4.0 + flops_of(problem.epilogue, problem.outputs) + STORE_INSTRUCTIONS * stored


def _rate(device: GpuFacts) -> float:
    """Instructions of all threads of one multiprocessor in a microsecond."""
    return 0.5e6 * device.fp32_tflops / device.multiprocessors
