# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(norm(x)[M, K] @ w[N, K]^T), without a normalized x: programs see whole rows. In Gluon.

    norm(x)[m] @ w[n] = (x[m] @ w[n] - mean[m] * sums[n]) / sqrt(var[m] + epsilon)

sums[n] are of the elements of w[n].

One program makes one tile. Its blocks of K lie in a ring of STAGES stages, the first of which are all on
their way before anything is multiplied; those of w come while kernels before still run. While the tensor
cores multiply a block of x, as it is, four warps read the same block and add up its elements and their
squares, less the first element of each row: see spec.py. Without CENTRED, as of RMS norms, nothing is taken
off.

full[stage] completes once for every round of the ring, when both copies of a block are there. A stage is
loaded anew when the products with its block have ended, and all warps have read it, which a barrier tells.
What lies beyond M, N and K is read as zeros by the copy engine; rows beyond M and columns beyond N are not
stored.
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

from quantrt.kernels.fragments.triton_kernel import (
    load_blocks,
    load_constants,
    part_layout,
    part_of,
    parts_of,
    store_part,
)
from quantrt.kernels.functions.triton_kernel import await_kernels_before
from quantrt.kernels.ring.triton_kernel import WARPS, place_of, sums_layout

__all__ = ["normed_gemm"]

VECTOR = gl.constexpr(8)
"""Neighbouring elements of a row that a thread adds up: 16 bytes."""


@gluon.constexpr_function
def read_layout(columns, vector, warps):
    """Blocks [.., columns]: `vector` elements side by side for every thread, warps below each other."""
    across = min(columns // vector, 32)
    return gl.BlockedLayout([1, vector], [32 // across, across], [warps, 1], [1, 0])


@gluon.jit
def normed_gemm(
    x_desc,
    w_desc,
    x_ptr,
    sums_ptr,
    y0_ptr,
    y1_ptr,
    y2_ptr,
    y3_ptr,
    arg0,
    arg1,
    arg2,
    arg3,
    arg4,
    arg5,
    arg6,
    arg7,
    arg8,
    arg9,
    arg10,
    arg11,
    M,
    stride_xm,
    STRIDE_UNIT: gl.constexpr,
    N: gl.constexpr,
    K: gl.constexpr,
    EPSILON: gl.constexpr,
    CENTRED: gl.constexpr,
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
    STEPS: gl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    TILES_N: gl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    ROWS_W: gl.constexpr = (N + 4 * RUN - 1) // (4 * RUN) * 4 * RUN
    PARTS_M: gl.constexpr = BLOCK_M // (16 * WARPS)
    PARTS_N: gl.constexpr = BLOCK_N // (4 * RUN)
    READ: gl.constexpr = read_layout(BLOCK_K, VECTOR, WARPS)
    SUM: gl.constexpr = sums_layout(BLOCK_N, x_desc.dtype.primitive_bitwidth)
    PART: gl.constexpr = part_layout(RUN, WARPS)
    sizes: gl.constexpr = (N, K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP_M, RUN, 1)
    formula: gl.constexpr = (KINDS, PROGRAM, OUTPUTS, PITCHES)
    pointers = (y0_ptr, y1_ptr, y2_ptr, y3_ptr)
    slots = (arg0, arg1, arg2, arg3, arg4, arg5, arg6, arg7, arg8, arg9, arg10, arg11)

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
    rows = gl.minimum(tile_m * BLOCK_M + gl.arange(0, BLOCK_M, gl.SliceLayout(1, READ)), M - 1)
    first = gl.load(x_ptr + rows.to(gl.int64) * (stride_xm * STRIDE_UNIT)).to(gl.float32)[:, None]
    offs_n = tile_n * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, SUM))
    offs_k = gl.arange(0, BLOCK_K, gl.SliceLayout(0, READ))

    sums = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, SUM)
    total = gl.full((BLOCK_M, BLOCK_K), 0.0, gl.float32, READ)
    squares = gl.full((BLOCK_M, BLOCK_K), 0.0, gl.float32, READ)
    for k in range(STEPS):
        stage = k % STAGES
        mbarrier.wait(full.index(stage), (k // STAGES) & 1)
        x = x_ring.index(stage)
        sums = warpgroup_mma(x, w_ring.index(stage).permute((1, 0)), sums, use_acc=k > 0, is_async=True)
        part = x.load(READ).to(gl.float32)
        if CENTRED:
            part -= first
            if K % BLOCK_K != 0:
                part = gl.where((offs_k < K - k * BLOCK_K)[None, :], part, 0.0)
            total += part
        squares += part * part
        sums = warpgroup_mma_wait(1, deps=(sums,))
        if STAGES < STEPS:
            # The products with the block before have ended, and no warp reads it any more.
            gl.thread_barrier()
            if (k > 0) & (k - 1 + STAGES < STEPS):
                load_weights(ring, tile_n * BLOCK_N, k - 1 + STAGES, (k - 1) % STAGES, BLOCK_K)
                load_rows(ring, tile_m * BLOCK_M, k - 1 + STAGES, (k - 1) % STAGES, BLOCK_K)
    sums = warpgroup_mma_wait(0, deps=(sums,))

    power = gl.sum(squares, 1) / K
    if CENTRED:
        mean = gl.sum(total, 1) / K
        power = gl.maximum(power - mean * mean, 0.0)
        mean = gl.convert_layout(mean, gl.SliceLayout(1, SUM)) + gl.convert_layout(
            gl.sum(first, 1), gl.SliceLayout(1, SUM)
        )
        sums -= mean[:, None] * gl.load(sums_ptr + offs_n, mask=offs_n < ROWS_W, other=0.0)[None, :]
    scale = gl.convert_layout(gl.rsqrt(power + EPSILON), gl.SliceLayout(1, SUM))
    parts = parts_of(sums * scale[:, None], BLOCK_M, BLOCK_N, part_layout(RUN, WARPS))
    for p in gl.static_range(PARTS_M * PARTS_N):
        tensors = load_blocks(slots, part_of(tile_m, tile_n, p, M, sizes, PART), sizes, formula)
        store_part(
            parts[p], constants[p // PARTS_M], tensors, pointers, tile_m, tile_n, p, M, sizes, formula, PART
        )


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
