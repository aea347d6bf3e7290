# SPDX-License-Identifier: Apache-2.0
"""Sums of a consumer's tile over blocks of K that lie in a ring, in Gluon; see kernels/gemm_hopper.

sizes: (N, K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP_M, RUN, sums for an output) of the consumer's tile.
rows: (first row of that tile in a stage, whether the stage has others too).

Sums have a power of two of columns, as all blocks have, and `rest` those beside them: 0 where there are none.

Promoted: Hopper's tensor cores keep about 14 bits of the sums of FP8 products, so that their error grows with
their length. Sums of BLOCKS blocks at a time are added up in float32, in registers of their own. A consumer's
products rest meanwhile, those of the other one do not: consumer 1 begins its first tile when consumer 0 has
multiplied the first blocks, which are fewer than the ring has, and stays as far behind.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from quantrt.kernels.jit.ring import main_columns, next_stage, stage_before, sums_layout

__all__ = ["let_go", "promoted_sums", "sums_of"]


@gluon.jit
def sums_of(ring, stage, parity, BLOCKS: gl.constexpr, rows: gl.constexpr, sizes: gl.constexpr):
    """Sums over the next blocks of the ring, the last of them unfinished; and the block behind them."""
    x_ring, w_ring, rest_ring, full, empty = ring
    BLOCK_M: gl.constexpr = sizes[2]
    STAGES: gl.constexpr = sizes[5]
    FIRST: gl.constexpr = rows[0]
    IS_PART: gl.constexpr = rows[1]
    SUM: gl.constexpr = gl.int32 if x_ring.dtype == gl.int8 else gl.float32
    MAIN_N: gl.constexpr = main_columns(sizes[3])
    REST_N: gl.constexpr = sizes[3] - MAIN_N
    BITS: gl.constexpr = x_ring.dtype.primitive_bitwidth
    sums = gl.zeros((BLOCK_M, MAIN_N), SUM, sums_layout(MAIN_N, BITS))
    rest = 0
    if REST_N > 0:
        rest = gl.zeros((BLOCK_M, REST_N), SUM, sums_layout(REST_N, BITS))
    for k in range(BLOCKS):
        mbarrier.wait(full.index(stage), parity)
        x = x_ring.index(stage)
        if IS_PART:
            x = x.slice(FIRST, BLOCK_M)
        sums = warpgroup_mma(x, w_ring.index(stage).permute((1, 0)), sums, use_acc=k > 0, is_async=True)
        # The products with one block stay unfinished, so the block before it is read no more.
        if REST_N > 0:
            rest = warpgroup_mma(
                x, rest_ring.index(stage).permute((1, 0)), rest, use_acc=k > 0, is_async=True
            )
            sums, rest = warpgroup_mma_wait(2, deps=(sums, rest))
        else:
            sums = warpgroup_mma_wait(1, deps=(sums,))
        mbarrier.arrive(empty.index(stage_before(stage, STAGES)), count=1, pred=k > 0)
        stage, parity = next_stage(stage, parity, STAGES)
    return sums, rest, stage, parity


@gluon.jit
def let_go(ring, sums, rest, stage, sizes: gl.constexpr):
    """The sums, finished; their last block, the one before `stage`, is let go."""
    if sizes[3] > main_columns(sizes[3]):
        sums, rest = warpgroup_mma_wait(0, deps=(sums, rest))
    else:
        sums = warpgroup_mma_wait(0, deps=(sums,))
    mbarrier.arrive(ring[4].index(stage_before(stage, sizes[5])), count=1)
    return sums, rest


@gluon.jit
def promoted_sums(
    ring,
    turns,
    is_first,
    stage,
    parity,
    STEPS: gl.constexpr,
    BLOCKS: gl.constexpr,
    CONSUMER: gl.constexpr,
    rows: gl.constexpr,
    sizes: gl.constexpr,
):
    """Sums over STEPS blocks, those of BLOCKS at a time added up in float32.

    Args:
        is_first: whether this is the program's first tile.
    """
    HAS_REST: gl.constexpr = sizes[3] > main_columns(sizes[3])
    HEAD: gl.constexpr = min(BLOCKS, STEPS, max(sizes[5] - 2, 1))
    TAIL: gl.constexpr = (STEPS - HEAD) % BLOCKS
    if CONSUMER == 1:
        mbarrier.wait(turns.index(1), 0)
    totals, others, stage, parity = sums_of(ring, stage, parity, HEAD, rows, sizes)
    totals, others = let_go(ring, totals, others, stage, sizes)
    if CONSUMER == 0:
        mbarrier.arrive(turns.index(1), count=1, pred=is_first)
    for _ in range((STEPS - HEAD) // BLOCKS):
        sums, rest, stage, parity = sums_of(ring, stage, parity, BLOCKS, rows, sizes)
        sums, rest = let_go(ring, sums, rest, stage, sizes)
        totals += sums
        if HAS_REST:
            others += rest
    if TAIL > 0:
        sums, rest, stage, parity = sums_of(ring, stage, parity, TAIL, rows, sizes)
        sums, rest = let_go(ring, sums, rest, stage, sizes)
        totals += sums
        if HAS_REST:
            others += rest
    return totals, others
