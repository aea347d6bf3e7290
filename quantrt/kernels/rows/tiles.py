# SPDX-License-Identifier: Apache-2.0
"""Which variants of the kernel are worth timing for an expression, and what it should cost.

All of them are bound by memory: a variant matters by how wide its loads are and by how many are in flight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from quantrt.gpu import GpuFacts
from quantrt.kernels.rows.spec import (
    ALIGNMENT,
    BLOCK,
    COLUMN,
    ELEMENT,
    HELD_ROWS,
    LONG_ROWS,
    LOOKUP,
    LOOKUP_ELEMENT,
    MAX_OUTER,
    ROW,
    SCALAR,
    STRIDED,
    TILES,
    WHOLE_ROWS,
    RowsProblem,
    TileConfig,
    Variant,
    arguments_of,
)

__all__ = ["configs", "variants"]

MAX_CONFIGS = 4
LANES = 32
MAX_WARPS = 8
MOST_ELEMENTS = 64
"""In a thread: a norm to codes then takes 253 registers of 255 on sm_90, and with more it spills."""

LEAST_SHARED = 8
MOST_SHARED = 32
"""In a thread, beside as many of each operand that all rows have in common."""

TALL_ROWS, WIDE = 4, 1024
MOST_TALL = 32
"""Rows of a program, columns from which on they are tried, and elements of a thread."""

MAX_BLOCK = LANES * MAX_WARPS * MOST_ELEMENTS
"""Columns of a row that is held in registers: 16384."""

SHARED_PROGRAMS = 16
"""Of one warp, on each multiprocessor, where they share out rows. Of two rows at a time, or of four warps,
they are slower than a program for each tile on an H200 (docs/results/cuda-kernels-h200.json)."""

AHEAD_PROGRAMS = 12
"""The same where the next row is on its way while one is computed: with 168 registers."""

LEAST_TILES = 2
"""For each of such programs: with fewer, reading what rows have in common once is no gain."""

PART = 8
LEAST_PART, MOST_PARTS = 64, 7
"""Elements of a part in a thread, of up to 16 bytes; columns of a part, and parts of a row."""

LEAST_BUSY = 0.75
"""Of a tile's threads: with fewer, rows are held in parts. 640 of 1024 columns are fewer, 768 are not."""

BUSY_PROGRAMS = 2
"""Programs for each multiprocessor below which a smaller tile is the better one."""


def configs(problem: RowsProblem, device: GpuFacts) -> tuple[TileConfig, ...]:
    """At most 4 tiles, the most promising first; then those that read less of what rows have in common.

    Where a power of two would leave many threads idle, rows are held in parts alone: for 1280 columns that is
    less than half of the instructions, and a quarter of the programs.
    """
    held = _in_parts(problem)
    if held and problem.walk.columns < LEAST_BUSY * _power_of_2(problem.walk.columns):
        return (*held, *_shared_out(problem, device))
    found = _row_tiles(problem) if problem.has_rows else _element_tiles(problem)
    least = BUSY_PROGRAMS * device.multiprocessors
    busy = [tile for tile in found if _programs(problem, tile) >= least]
    rest = sorted((tile for tile in found if tile not in busy), key=lambda tile: tile.rows * tile.columns)
    chosen = (busy + rest)[:MAX_CONFIGS]
    taller = [tile for tile in _taller(problem) if tile in busy and tile not in chosen]
    return (*chosen, *taller, *_shared_out(problem, device), *held)


def variants(
    problem: RowsProblem, tile: TileConfig, usual: TileConfig, other: RowsProblem | None = None
) -> tuple[Variant, ...]:
    """What one tactic carries, best first: for the shapes at hand, for others like them, and for any.

    Those for others, in the tile `usual`, count on operands that are contiguous and aligned, with any batch;
    the last counts on nothing. All tactics of a problem share them.

    Args:
        other: the problem in another memory format that may arrive.
    """
    outer = max(len(problem.walk.outer), 1 if problem.has_rows else 0)
    chosen = []
    if outer <= MAX_OUTER:
        chosen.append(_variant(problem, _exact_kinds(problem), outer, tile))
        if outer:
            chosen.append(_variant(problem, _similar_kinds(problem), MAX_OUTER, usual))
    if other is not None and 0 < len(other.walk.outer) <= MAX_OUTER:
        chosen.append(_variant(other, _similar_kinds(other), MAX_OUTER, usual))
    any_kinds = tuple(kind if kind == SCALAR or kind >= LOOKUP else STRIDED for kind in _exact_kinds(problem))
    mode, general = (
        (LONG_ROWS, TileConfig(1, 2048, 8)) if problem.has_rows else (TILES, TileConfig(1, 512, 4))
    )
    chosen.append(Variant(any_kinds, MAX_OUTER, mode, general))
    return tuple(chosen)


def _variant(problem: RowsProblem, kinds: tuple[int, ...], outer: int, tile: TileConfig) -> Variant:
    mode = HELD_ROWS if tile.parts > 1 else _mode(problem)
    return Variant(kinds, outer, mode, tile, _aligned(problem, kinds, outer))


def _exact_kinds(problem: RowsProblem) -> tuple[int, ...]:
    strides = iter(problem.walk.strides)
    kinds = [SCALAR if x.kind == "scalar" else _kind_of(next(strides)) for x in problem.expression.operands]
    for number, index in problem.expression.lookups.items():
        kinds[number] = index + (LOOKUP_ELEMENT if problem.tables[number].columns == 1 else LOOKUP)
    return tuple(kinds)


def _similar_kinds(problem: RowsProblem) -> tuple[int, ...]:
    """Kinds that stay right with another batch: what was the same for all rows may differ then."""
    wider = {ELEMENT: ROW, COLUMN: BLOCK}
    return tuple(wider.get(kind, kind) for kind in _exact_kinds(problem))


def _kind_of(strides: Sequence[int]) -> int:
    is_fixed = not any(strides[:-1])
    if strides[-1] == 0:
        return ELEMENT if is_fixed else ROW
    if strides[-1] == 1:
        return COLUMN if is_fixed and len(strides) > 1 else BLOCK
    return STRIDED


def _aligned(problem: RowsProblem, kinds: Sequence[int], outer: int) -> frozenset[str]:
    """Pointers, and sizes and strides that are multiples of 16 at the shapes at hand.

    A stride that is 0 for want of a batch will be a multiple of the columns where there is one.
    """
    values = arguments_of(problem.expression, problem.walk, outer, problem.tables)
    likely = {name: value or problem.walk.columns for name, value in values.items()}
    numbers = {name for name, value in likely.items() if value % ALIGNMENT == 0}
    pointers = {f"x{i}" for i, kind in enumerate(kinds) if kind not in (SCALAR, ELEMENT)}
    return frozenset(numbers - {"R", "D1", "D2"} | pointers | {f"y{i}" for i in range(len(problem.outputs))})


def _mode(problem: RowsProblem) -> int:
    if not problem.has_rows:
        return TILES
    return WHOLE_ROWS if problem.walk.columns <= MAX_BLOCK else LONG_ROWS


def _row_tiles(problem: RowsProblem) -> list[TileConfig]:
    """Whole rows: 8 to 16 elements for each thread, then more; long rows in parts."""
    columns = max(_power_of_2(problem.walk.columns), 16)
    if columns > MAX_BLOCK:
        return [TileConfig(1, 4096, 8), TileConfig(1, 8192, 8), TileConfig(1, 2048, 4)]
    found = {
        TileConfig(rows, columns, warps): _burden(rows * columns, warps)
        for rows in (1, 2, 4, 8, 16, 32, 64)
        for warps in (1, 2, 4, MAX_WARPS)
        if rows * columns <= MOST_ELEMENTS * LANES * warps
        and (rows == 1 or (rows * columns <= 8192 and rows <= _power_of_2(problem.walk.rows)))
    }
    return sorted(found, key=lambda tile: (found[tile], tile.num_warps != 4, tile.rows))


def _taller(problem: RowsProblem) -> list[TileConfig]:
    """Four wide rows for each program: what they have in common is as many bytes as a row or more."""
    columns = _power_of_2(problem.walk.columns)
    is_worth = _has_common(problem) and WIDE <= columns <= MAX_WARPS * LANES * MOST_TALL // TALL_ROWS
    return [TileConfig(TALL_ROWS, columns, MAX_WARPS)] if is_worth else []


def _has_common(problem: RowsProblem) -> bool:
    """Whether rows have operands in common, and no tables."""
    kinds = set(_exact_kinds(problem))
    return problem.has_rows and COLUMN in kinds and max(kinds) < LOOKUP


def _shared_out(problem: RowsProblem, device: GpuFacts) -> list[TileConfig]:
    """Whole rows for programs of one warp, which read what all have in common once, and also the next row."""
    columns = max(_power_of_2(problem.walk.columns), 16)
    programs = SHARED_PROGRAMS * device.multiprocessors
    is_worth = (
        _has_common(problem)
        and LEAST_SHARED <= columns // LANES <= MOST_SHARED
        and problem.walk.rows >= LEAST_TILES * programs
    )
    ahead = AHEAD_PROGRAMS * device.multiprocessors
    found = [TileConfig(1, columns, 1, programs), TileConfig(1, columns, 1, ahead, is_ahead=True)]
    return found if is_worth else []


def _in_parts(problem: RowsProblem) -> list[TileConfig]:
    """Whole rows of no power of two, in parts that are: a warp has one row or more, and is busy with them."""
    columns = problem.walk.columns
    part = columns & -columns
    parts = columns // part if part else 1
    if not problem.has_rows or problem.tables or part < LEAST_PART or not 1 < parts <= MOST_PARTS:
        return []
    found = (TileConfig(PART * LANES * warps // part, part, warps, parts=parts) for warps in (4, MAX_WARPS))
    return [tile for tile in found if 1 <= tile.rows <= problem.walk.rows]


def _element_tiles(problem: RowsProblem) -> list[TileConfig]:
    walk = problem.walk
    sizes = ((2048, 8), (1024, 4), (4096, 8), (2048, 4), (512, 2), (256, 1))
    if not walk.outer:
        return [TileConfig(1, size, warps) for size, warps in sizes]
    found = []
    for size, warps in sizes:
        columns = min(_power_of_2(walk.columns), size)
        rows = min(size // columns, _power_of_2(walk.rows))
        found.append(TileConfig(rows, columns, warps))
    return list(dict.fromkeys(found))


def _burden(elements: int, num_warps: int) -> float:
    """0 for 8 to 16 elements in each thread, more the farther from that."""
    each = elements / (LANES * num_warps)
    return max(math.log2(8 / each), math.log2(each / 16), 0.0)


def _programs(problem: RowsProblem, tile: TileConfig) -> int:
    rows = -(-max(problem.walk.rows, 1) // tile.rows)
    return rows if problem.has_rows else rows * -(-max(problem.walk.columns, 1) // tile.columns)


def _power_of_2(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
