# SPDX-License-Identifier: Apache-2.0
"""Consumers that multiply and finish a tile in slices, a few columns at a time.

Where K is short, finishing a tile takes longer than multiplying it, and the more so the more machine code
there is to fetch and the more sums move between registers. Here a loop over slices of 4 RUN columns holds
the product of a slice and its end: sums of a slice alone are in registers, under one name.

The blocks of a tile stay in the ring until its last slice is finished: its STEPS stages are awaited together,
and let go together. The ring has stages for two tiles at least, STAGES >= 2 * STEPS, so consumers need no
turns: the blocks that lay in a tile's stages before its own are not behind those of the consumer's last tile,
2 * STEPS blocks before, which were there; so a parity is never that of the round before the last.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from quantrt.kernels.jit.fragments import (
    finish_part,
    load_blocks,
    load_constants,
    part_layout,
    part_of,
    parts_of,
)
from quantrt.kernels.jit.functions import await_kernels_before
from quantrt.kernels.jit.ring import WARPS, next_stage, place_of, sums_layout

__all__ = ["consume_slices"]


@gluon.jit
def consume_slices(
    ring,
    pointers,
    slots,
    M,
    CONSUMER: gl.constexpr,
    sizes: gl.constexpr,
    formula: gl.constexpr,
):
    """Multiply, finish and store every other tile of this program; see `gemm_hopper`."""
    x_ring, w_ring, rest_ring, full, empty = ring
    N: gl.constexpr = sizes[0]
    BLOCK_M: gl.constexpr = sizes[2]
    BLOCK_N: gl.constexpr = sizes[3]
    BLOCK_K: gl.constexpr = sizes[4]
    STAGES: gl.constexpr = sizes[5]
    RUN: gl.constexpr = sizes[7]
    TILES_N: gl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    STEPS: gl.constexpr = (sizes[1] + BLOCK_K - 1) // BLOCK_K
    PARTS_M: gl.constexpr = BLOCK_M // (16 * WARPS)
    SLICE: gl.constexpr = 4 * RUN
    SLICES: gl.constexpr = BLOCK_N // SLICE
    PART: gl.constexpr = part_layout(RUN, WARPS)
    SUM: gl.constexpr = gl.int32 if x_ring.dtype == gl.int8 else gl.float32
    SUMS: gl.constexpr = sums_layout(SLICE, x_ring.dtype.primitive_bitwidth)
    gl.static_assert(2 * STEPS <= STAGES)
    tiles_m = gl.cdiv(M, BLOCK_M)
    programs = gl.num_programs(0)
    await_kernels_before()
    block = CONSUMER * STEPS
    for tile in range(gl.program_id(0) + CONSUMER * programs, tiles_m * TILES_N, 2 * programs):
        tile_m, tile_n = place_of(tile, tiles_m, TILES_N, sizes[6])
        first = block % STAGES
        parity = (block // STAGES) & 1
        block += 2 * STEPS
        constants = (load_constants(slots, tile_n, 0, sizes, formula, PART),)
        tensors = ()
        for q in gl.static_range(PARTS_M):
            place = part_of(tile_m, tile_n, q, M, sizes, PART)
            tensors = tensors + (load_blocks(slots, place, sizes, formula),)
        stage = first + 0
        for _ in gl.static_range(STEPS):
            mbarrier.wait(full.index(stage), parity)
            stage, parity = next_stage(stage, parity, STAGES)

        for column in range(SLICES):
            sums = gl.zeros((BLOCK_M, SLICE), SUM, SUMS)
            stage = first + 0
            for k in gl.static_range(STEPS):
                w = slice_of(w_ring, stage, column, SLICES, (SLICE, BLOCK_K)).permute((1, 0))
                sums = warpgroup_mma(x_ring.index(stage), w, sums, use_acc=k > 0, is_async=True)
                stage, parity = next_stage(stage, parity, STAGES)
            # What the next slice reads is on its way while this one is multiplied and finished.
            following = load_constants(slots, tile_n, (column + 1) % SLICES, sizes, formula, PART)
            later = ()
            for q in gl.static_range(PARTS_M):
                place = part_of(tile_m, tile_n, (column + 1) * PARTS_M + q, M, sizes, PART)
                there = (place[0], place[1], place[2], place[3], place[4] & (column + 1 < SLICES))
                later = later + (load_blocks(slots, there, sizes, formula),)
            sums = warpgroup_mma_wait(0, deps=(sums,))
            parts = parts_of(sums, BLOCK_M, SLICE, PART)
            for q in gl.static_range(PARTS_M):
                place = part_of(tile_m, tile_n, column * PARTS_M + q, M, sizes, PART)
                finish_part(parts[q], constants[0], tensors[q], pointers, place, sizes, formula, PART)
            constants = (following,)
            tensors = tensors[PARTS_M:] + later

        stage = first + 0
        for _ in gl.static_range(STEPS):
            mbarrier.arrive(empty.index(stage), count=1)
            stage, parity = next_stage(stage, parity, STAGES)


@gluon.jit
def slice_of(ring, stage, number, SLICES: gl.constexpr, SHAPE: gl.constexpr):
    """Rows of a stage of w: the `number`-th of its slices, whole periods of 8 rows."""
    slices = ring._reinterpret(ring.dtype, [ring.shape[0] * SLICES, SHAPE[0], SHAPE[1]], ring.layout)
    return slices.index(stage * SLICES + number)
