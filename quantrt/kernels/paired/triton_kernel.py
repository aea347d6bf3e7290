# SPDX-License-Identifier: Apache-2.0
"""One of two programs of a multiprocessor: eight warps that load, multiply and finish its tiles together.

Two consumers of one program (`gemm_hopper`) have a copy each of the machine code that finishes a tile, one
warp to a quarter of the multiprocessor runs it, and where it is long it is fetched more slowly than it runs.
Here both programs run the same code, of half as many elements to a thread, in two warps to a quarter: while
one finishes a tile, the other one multiplies.

Blocks of K are numbered through all tiles of the program. Block s lies in stage s % STAGES. It is asked for
when the product of block s - STAGES is over, in all warps: so blocks of the next tile are on their way while
a tile is finished, and no barrier says that a stage is empty.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from quantrt.kernels.fragments.triton_kernel import (
    finish_tile,
    operands_ahead,
    part_layout,
    parts_of,
)
from quantrt.kernels.functions.triton_kernel import await_kernels_before
from quantrt.kernels.ring.triton_kernel import next_stage, place_of, stage_before, sums_layout

__all__ = ["PAIRED_WARPS", "work"]

PAIRED_WARPS = gl.constexpr(8)


@gluon.jit
def work(
    ring,
    x_desc,
    w_desc,
    pointers,
    slots,
    M,
    sizes: gl.constexpr,
    ahead: gl.constexpr,
    formula: gl.constexpr,
):
    """Load, multiply, finish and store every tile of this program; see `gemm_hopper`."""
    x_ring, w_ring, _, full, _ = ring
    BLOCK_M: gl.constexpr = sizes[2]
    BLOCK_N: gl.constexpr = sizes[3]
    STAGES: gl.constexpr = sizes[5]
    TILES_N: gl.constexpr = (sizes[0] + BLOCK_N - 1) // BLOCK_N
    STEPS: gl.constexpr = (sizes[1] + sizes[4] - 1) // sizes[4]
    PART: gl.constexpr = part_layout(sizes[7], PAIRED_WARPS)
    SUM: gl.constexpr = gl.int32 if x_ring.dtype == gl.int8 else gl.float32
    SUMS: gl.constexpr = sums_layout(BLOCK_N, x_ring.dtype.primitive_bitwidth, PAIRED_WARPS)
    gl.static_assert(STEPS >= STAGES)
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles = tiles_m * TILES_N
    programs = gl.num_programs(0)
    is_there = gl.program_id(0) < tiles
    next_m, next_n = place_of(gl.minimum(gl.program_id(0), tiles - 1), tiles_m, TILES_N, sizes[6])
    for i in gl.static_range(STAGES):
        ask_weights(w_desc, x_desc, w_ring, full, next_n, i, i, is_there, sizes)
    await_kernels_before()
    for i in gl.static_range(STAGES):
        ask_rows(x_desc, x_ring, full, next_m, i, i, is_there, sizes)
    stage = 0
    parity = 0
    for tile in range(gl.program_id(0), tiles, programs):
        tile_m, tile_n = place_of(tile, tiles_m, TILES_N, sizes[6])
        is_there = tile + programs < tiles
        next_m, next_n = place_of(gl.minimum(tile + programs, tiles - 1), tiles_m, TILES_N, sizes[6])
        constants, tensors = operands_ahead(slots, tile_m, tile_n, M, ahead, sizes, formula, PART)
        sums = gl.zeros((BLOCK_M, BLOCK_N), SUM, SUMS)
        for k in range(STEPS):
            mbarrier.wait(full.index(stage), parity)
            w = w_ring.index(stage).permute((1, 0))
            sums = warpgroup_mma(x_ring.index(stage), w, sums, use_acc=k > 0, is_async=True)
            # The product of this block stays unfinished, so the block before it is read no more.
            sums = warpgroup_mma_wait(1, deps=(sums,))
            gl.thread_barrier()
            number = k - 1 + STAGES
            is_later = number >= STEPS
            block_m = gl.where(is_later, next_m, tile_m)
            block_n = gl.where(is_later, next_n, tile_n)
            block = gl.where(is_later, number - STEPS, number)
            empty = stage_before(stage, STAGES)
            is_asked = (k > 0) & (is_there | (number < STEPS))
            ask_weights(w_desc, x_desc, w_ring, full, block_n, block, empty, is_asked, sizes)
            ask_rows(x_desc, x_ring, full, block_m, block, empty, is_asked, sizes)
            stage, parity = next_stage(stage, parity, STAGES)
        sums = warpgroup_mma_wait(0, deps=(sums,))
        gl.thread_barrier()
        empty = stage_before(stage, STAGES)
        ask_weights(w_desc, x_desc, w_ring, full, next_n, STAGES - 1, empty, is_there, sizes)
        ask_rows(x_desc, x_ring, full, next_m, STAGES - 1, empty, is_there, sizes)
        parts = parts_of(sums, BLOCK_M, BLOCK_N, PART)
        finish_tile(
            parts, constants, tensors, slots, pointers, tile_m, tile_n, M, ahead, sizes, formula, PART
        )


@gluon.jit
def ask_weights(w_desc, x_desc, w_ring, full, tile_n, k, stage, is_asked, sizes: gl.constexpr):
    """Begin a block: all of its bytes are expected, and those of the weights asked for."""
    ready = full.index(stage)
    mbarrier.expect(ready, x_desc.block_type.nbytes + w_desc.block_type.nbytes, pred=is_asked)
    place = [tile_n * sizes[3], k * sizes[4]]
    tma.async_copy_global_to_shared(w_desc, place, ready, w_ring.index(stage), pred=is_asked)


@gluon.jit
def ask_rows(x_desc, x_ring, full, tile_m, k, stage, is_asked, sizes: gl.constexpr):
    """Ask for the rest of a block."""
    place = [tile_m * sizes[2], k * sizes[4]]
    tma.async_copy_global_to_shared(x_desc, place, full.index(stage), x_ring.index(stage), pred=is_asked)
