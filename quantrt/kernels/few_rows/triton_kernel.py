# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(x[M, K] @ w[N, K]^T) of few rows. In Gluon.

One program makes one tile. Its blocks of K lie in a ring of STAGES stages, the first of which are all on
their way before anything is multiplied; those of w come while kernels before still run.

full[stage] completes once for every round of the ring, when both copies of a block are there. A stage is
loaded anew when the products with its block have ended in all warps, which a barrier tells.
Of a gate, w has two rows for every column of y, side by side. What lies beyond M, N and K is read as zeros by
the copy engine; rows beyond M and columns beyond N are not stored.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from quantrt.kernels.jit.fragments import (
    finish_part,
    load_blocks,
    load_constants,
    part_layout,
    part_of,
    parts_of,
)
from quantrt.kernels.jit.functions import await_kernels_before
from quantrt.kernels.jit.ring import WARPS, place_of, sums_layout

__all__ = ["few_rows"]


@gluon.jit
def few_rows(
    x_desc,
    w_desc,
    pointers,
    slots,
    M,
    N: gl.constexpr,
    K: gl.constexpr,
    GATED: gl.constexpr,
    KINDS: gl.constexpr,
    PROGRAM: gl.constexpr,
    OUTPUTS: gl.constexpr,
    PITCHES: gl.constexpr,
    RUN: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP_M: gl.constexpr,
):
    HALVES: gl.constexpr = 1 + GATED
    STEPS: gl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    TILES_N: gl.constexpr = (N * HALVES + BLOCK_N - 1) // BLOCK_N
    PARTS_M: gl.constexpr = BLOCK_M // (16 * WARPS)
    PARTS_N: gl.constexpr = BLOCK_N // (4 * RUN * HALVES)
    PART: gl.constexpr = part_layout(RUN, WARPS)
    sizes: gl.constexpr = (N, K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP_M, RUN, HALVES)
    formula: gl.constexpr = (KINDS, PROGRAM, OUTPUTS, PITCHES)

    x_ring = gl.allocate_shared_memory(x_desc.dtype, [STAGES, BLOCK_M, BLOCK_K], x_desc.layout)
    w_ring = gl.allocate_shared_memory(w_desc.dtype, [STAGES, BLOCK_N, BLOCK_K], w_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
    fence_async_shared()
    tile_m, tile_n = place_of(gl.program_id(0), gl.cdiv(M, BLOCK_M), TILES_N, GROUP_M)
    ring = (x_ring, w_ring, full, x_desc, w_desc)
    for k in gl.static_range(min(STAGES, STEPS)):
        load_weights(ring, tile_n * BLOCK_N, k, k, BLOCK_K)
    await_kernels_before()
    for k in gl.static_range(min(STAGES, STEPS)):
        load_rows(ring, tile_m * BLOCK_M, k, k, BLOCK_K)

    # What a tile ends with is on its way too.
    constants = ()
    for j in gl.static_range(PARTS_N):
        constants = constants + (load_constants(slots, tile_n, j, sizes, formula, PART),)
    tensors = ()
    for p in gl.static_range(PARTS_M * PARTS_N):
        place = part_of(tile_m, tile_n, p, M, sizes, PART)
        tensors = tensors + (load_blocks(slots, place, sizes, formula),)
    sums = multiply(ring, tile_m, tile_n, sizes)
    parts = parts_of(sums, BLOCK_M, BLOCK_N, part_layout(RUN * HALVES, WARPS))
    for p in gl.static_range(PARTS_M * PARTS_N):
        place = part_of(tile_m, tile_n, p, M, sizes, PART)
        finish_part(parts[p], constants[p // PARTS_M], tensors[p], pointers, place, sizes, formula, PART)


@gluon.jit
def multiply(ring, tile_m, tile_n, sizes: gl.constexpr):
    """The sums of a tile."""
    x_ring, w_ring, full, x_desc, w_desc = ring
    STEPS: gl.constexpr = (sizes[1] + sizes[4] - 1) // sizes[4]
    STAGES: gl.constexpr = sizes[5]
    KIND: gl.constexpr = gl.int32 if x_ring.dtype == gl.int8 else gl.float32
    sums = gl.zeros((sizes[2], sizes[3]), KIND, sums_layout(sizes[3], x_ring.dtype.primitive_bitwidth))
    for k in range(STEPS):
        stage = k % STAGES
        mbarrier.wait(full.index(stage), (k // STAGES) & 1)
        w = w_ring.index(stage).permute((1, 0))
        sums = warpgroup_mma(x_ring.index(stage), w, sums, use_acc=k > 0, is_async=True)
        sums = warpgroup_mma_wait(1, deps=(sums,))
        load_again(ring, tile_m, tile_n, k, sizes)
    return warpgroup_mma_wait(0, deps=(sums,))


@gluon.jit
def load_again(ring, tile_m, tile_n, k, sizes: gl.constexpr):
    """In step k: the stage of the block before gets another, where one is left.

    The products with the block before have ended in this warp, and behind the barrier in all.
    """
    STEPS: gl.constexpr = (sizes[1] + sizes[4] - 1) // sizes[4]
    STAGES: gl.constexpr = sizes[5]
    if STAGES < STEPS:
        gl.thread_barrier()
        if (k > 0) & (k - 1 + STAGES < STEPS):
            load_weights(ring, tile_n * sizes[3], k - 1 + STAGES, (k - 1) % STAGES, sizes[4])
            load_rows(ring, tile_m * sizes[2], k - 1 + STAGES, (k - 1) % STAGES, sizes[4])


@gluon.jit
def load_weights(ring, column, k, stage, BLOCK_K: gl.constexpr):
    """Begin block k: all of its bytes are expected, and those of w asked for."""
    x_ring, w_ring, full, x_desc, w_desc = ring
    ready = full.index(stage)
    mbarrier.expect(ready, x_desc.block_type.nbytes + w_desc.block_type.nbytes)
    tma.async_copy_global_to_shared(w_desc, [column, k * BLOCK_K], ready, w_ring.index(stage))


@gluon.jit
def load_rows(ring, row, k, stage, BLOCK_K: gl.constexpr):
    """The rest of block k: ask for x."""
    x_ring, w_ring, full, x_desc, w_desc = ring
    tma.async_copy_global_to_shared(x_desc, [row, k * BLOCK_K], full.index(stage), x_ring.index(stage))
