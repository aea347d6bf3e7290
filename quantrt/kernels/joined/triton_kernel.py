# SPDX-License-Identifier: Apache-2.0
"""One consumer of sixteen warps that multiplies and finishes a tile in slices, a few columns at a time.

Where K is short, a tile's time is that of the instructions that finish it. Two consumers of four warps each
(kernels/slices) leave cycles without one, for they run their own copies of long machine code, and a quarter
of a multiprocessor has but one warp of each. Here four warps of every quarter run one loop: it waits for the
sums of a slice, makes floats of them, begins the product of the next slice and finishes this one.

The last slice begins the first one again, in vain, so that the loop has no branch. A tile's blocks stay in
the ring until its last product is over; with stages for two tiles the next ones come meanwhile.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from quantrt.kernels.fragments.triton_kernel import (
    finish_part,
    load_blocks,
    load_constants,
    part_layout,
    part_of,
    parts_of,
)
from quantrt.kernels.functions.triton_kernel import await_kernels_before
from quantrt.kernels.ring.triton_kernel import next_stage, place_of
from quantrt.kernels.slices.triton_kernel import slice_of

__all__ = ["JOINED_WARPS", "consume_joined"]

JOINED_WARPS = gl.constexpr(16)


@gluon.jit
def consume_joined(ring, pointers, slots, M, sizes: gl.constexpr, formula: gl.constexpr):
    """Multiply, finish and store every tile of this program; see `gemm_hopper`."""
    x_ring, w_ring, rest_ring, full, empty = ring
    N: gl.constexpr = sizes[0]
    BLOCK_M: gl.constexpr = sizes[2]
    BLOCK_N: gl.constexpr = sizes[3]
    BLOCK_K: gl.constexpr = sizes[4]
    STAGES: gl.constexpr = sizes[5]
    RUN: gl.constexpr = sizes[7]
    TILES_N: gl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    STEPS: gl.constexpr = (sizes[1] + BLOCK_K - 1) // BLOCK_K
    SLICE: gl.constexpr = 4 * RUN
    SLICES: gl.constexpr = BLOCK_N // SLICE
    PART: gl.constexpr = part_layout(RUN, JOINED_WARPS)
    IS_INTEGER: gl.constexpr = x_ring.dtype == gl.int8
    gl.static_assert(BLOCK_M == 16 * JOINED_WARPS)
    gl.static_assert(STEPS <= STAGES)
    tiles_m = gl.cdiv(M, BLOCK_M)
    await_kernels_before()
    block = 0
    for tile in range(gl.program_id(0), tiles_m * TILES_N, gl.num_programs(0)):
        tile_m, tile_n = place_of(tile, tiles_m, TILES_N, sizes[6])
        first = block % STAGES
        parity = (block // STAGES) & 1
        block += STEPS
        tensors = (load_blocks(slots, part_of(tile_m, tile_n, 0, M, sizes, PART), sizes, formula),)
        stage = first + 0
        for _ in gl.static_range(STEPS):
            mbarrier.wait(full.index(stage), parity)
            stage, parity = next_stage(stage, parity, STAGES)

        sums = multiply_slice(x_ring, w_ring, first, 0, sizes)
        for column in range(SLICES):
            constants = load_constants(slots, tile_n, column, sizes, formula, PART)
            sums = warpgroup_mma_wait(0, deps=(sums,))
            (part,) = parts_of(sums, BLOCK_M, SLICE, PART)
            # Floats leave the registers of sums to the next product.
            part = part.to(gl.float32)
            sums = multiply_slice(x_ring, w_ring, first, (column + 1) % SLICES, sizes)
            place = part_of(tile_m, tile_n, column + 1, M, sizes, PART)
            there = place[:4] + (place[4] & (column + 1 < SLICES),)
            later = load_blocks(slots, there, sizes, formula)
            place = part_of(tile_m, tile_n, column, M, sizes, PART)
            finish_part(part, constants, tensors[0], pointers, place, sizes, formula, PART, IS_INTEGER)
            tensors = (later,)

        sums = warpgroup_mma_wait(0, deps=(sums,))
        stage = first + 0
        for _ in gl.static_range(STEPS):
            mbarrier.arrive(empty.index(stage), count=1)
            stage, parity = next_stage(stage, parity, STAGES)


@gluon.jit
def multiply_slice(x_ring, w_ring, first, column, sizes: gl.constexpr):
    """Begin the product of a tile, whose blocks lie from stage `first` on, with a slice of its columns."""
    BLOCK_K: gl.constexpr = sizes[4]
    STEPS: gl.constexpr = (sizes[1] + BLOCK_K - 1) // BLOCK_K
    SLICE: gl.constexpr = 4 * sizes[7]
    SUM: gl.constexpr = gl.int32 if x_ring.dtype == gl.int8 else gl.float32
    SUMS: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0],
        warps_per_cta=[JOINED_WARPS, 1],
        instr_shape=[16, SLICE, 256 // x_ring.dtype.primitive_bitwidth],
    )
    sums = gl.zeros((sizes[2], SLICE), SUM, SUMS)
    stage = first + 0
    parity = 0
    for k in gl.static_range(STEPS):
        w = slice_of(w_ring, stage, column, sizes[3] // SLICE, (SLICE, BLOCK_K)).permute((1, 0))
        sums = warpgroup_mma(x_ring.index(stage), w, sums, use_acc=k > 0, is_async=True)
        stage, parity = next_stage(stage, parity, sizes[5])
    return sums
