# SPDX-License-Identifier: Apache-2.0
"""Attention of four warps, which have 64 of a tile's queries and all keys, in Gluon; see `attention_hopper`.

A consumer takes the blocks of keys of one tile after the other in one run of steps. A step turns the scores
of its block into weights, and begins three products: the scores of the next block, the values of this one,
and the sums of the weights. While the values are multiplied it looks for the largest score of the next block.
With codes the block behind the last one of a tile is the first one of the next tile, so that products never
run dry between tiles. Of floats a tile begins by itself; a mask may hide whole blocks of it.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from quantrt.kernels.attention_fragments.triton_kernel import (
    HIDDEN,
    add_mask,
    code_rows,
    hide_unseen,
    load_scales,
    mask_differs,
    multiply_scores,
    multiply_values,
    next_stage,
    over_columns,
    peak_of,
    scales_of,
    store_attended,
    sums_layout,
)
from quantrt.kernels.attention_weights.triton_kernel import weights_of
from quantrt.kernels.functions.triton_kernel import INF, await_kernels_before, reciprocal

__all__ = ["CONSUMERS", "COUNTS", "ROWS", "WARPS", "blocks_of", "consume", "place_of"]

WARPS = gl.constexpr(4)
"""Of a consumer."""
ROWS = gl.constexpr(64)
"""Queries of a consumer."""
CONSUMERS = gl.constexpr(2)
COUNTS = gl.constexpr(8)
"""Columns of ones: the fewest that a product has."""


@gluon.jit
def consume(
    rings,
    ones,
    barriers,
    scales,
    lengths,
    y,
    CONSUMER: gl.constexpr,
    sizes: gl.constexpr,
    how: gl.constexpr,
    formula: gl.constexpr,
):
    """Attend for 64 queries of every tile of this program."""
    _, _, k_ring, v_ring, _ = rings
    _, _, _, q_empty, _ = barriers
    B, H, S, T = lengths
    BLOCK_N: gl.constexpr = sizes[2]
    BLOCK_D: gl.constexpr = sizes[3]
    IS_CAUSAL: gl.constexpr = how[0]
    IS_CHAINED: gl.constexpr = how[4]
    SLOTS: gl.constexpr = sizes[6]
    V_BITS: gl.constexpr = v_ring.dtype.primitive_bitwidth
    SUMS: gl.constexpr = sums_layout(BLOCK_D, V_BITS)
    TOTALS: gl.constexpr = sums_layout(COUNTS, V_BITS)
    ROW: gl.constexpr = gl.SliceLayout(1, sums_layout(BLOCK_N, k_ring.dtype.primitive_bitwidth))
    count = B * H * gl.cdiv(S, ROWS * CONSUMERS)
    step = gl.num_programs(0)
    await_kernels_before()
    stage = 0
    parity = 0
    slot = 0
    q_parity = 0
    turn = 1 - CONSUMER
    place = tile_at(gl.program_id(0), scales, lengths, CONSUMER, sizes, k_ring.dtype, IS_CAUSAL)
    if IS_CHAINED:
        more = gl.where(gl.program_id(0) + step < count, 1, 0)
        row_scale = await_queries(0, 0, rings, barriers, scales[2], CONSUMER, sizes)
        q_tile = queries_at(0, rings, CONSUMER, BLOCK_D)
        begun = begin(place, row_scale, q_tile, more, 0, 0, rings, barriers, T, scales[2], sizes, how)
    for tile in range(gl.program_id(0), count, step):
        first, sample, head, rows, block_scales, blocks = place
        if not IS_CHAINED:
            row_scale = await_queries(slot, q_parity, rings, barriers, scales[2], CONSUMER, sizes)
            q_here = queries_at(slot, rings, CONSUMER, BLOCK_D)
            begun = begin(
                place, row_scale, q_here, 0, stage, parity, rings, barriers, T, scales[2], sizes, how
            )
        blocks, row_scale, scores, peak, shrink, stage, parity, k_scale, v_scale = begun
        totals = gl.full([ROWS, COUNTS], 0.0, gl.float32, TOTALS)
        sums = gl.full([ROWS, BLOCK_D], 0.0, gl.float32, SUMS)
        state = (
            scores, peak, shrink, totals, sums, stage, parity, row_scale, k_scale, v_scale, v_scale, turn,
        )  # fmt: skip
        is_end = tile + step >= count
        place = tile_at(
            gl.where(is_end, tile, tile + step), scales, lengths, CONSUMER, sizes, k_ring.dtype, IS_CAUSAL
        )
        here = (rows, block_scales, slot, T, scales[2])
        behind = (rows, block_scales, 1, 0, slot, q_parity)
        next_slot, next_parity = next_stage(slot, q_parity, SLOTS)
        if IS_CHAINED:
            more = place[5] + gl.where(tile + 2 * step < count, 1, 0)
            behind = (
                place[3], place[4], place[5], gl.where(is_end, 0, more),
                gl.where(is_end, slot, next_slot), gl.where(is_end, q_parity, next_parity),
            )  # fmt: skip
        masked = 0
        if IS_CAUSAL and BLOCK_N < ROWS * CONSUMERS:
            masked = gl.maximum(blocks - first // BLOCK_N - 1, 0)
            for i in range(0, masked):
                state = attend(
                    state, blocks - 1 - i, here, behind, rings, ones, barriers, CONSUMER, sizes, how, True
                )
        for i in range(masked, blocks):
            state = attend(
                state, blocks - 1 - i, here, behind, rings, ones, barriers, CONSUMER, sizes, how, False
            )
        scores, peak, shrink, totals, sums, stage, parity, row_scale, k_scale, v_scale, v_last, turn = state
        if not IS_CHAINED:
            mbarrier.arrive(q_empty.index(slot), count=1)
        slot, q_parity = next_stage(slot, q_parity, SLOTS)
        total = gl.convert_layout(gl.max(totals, axis=1), ROW, assert_trivial=True)
        if how[2]:
            total = gl.where(peak < HIDDEN, 0.0, total)
        if IS_CHAINED:
            begun = (place[5], row_scale, scores, peak, shrink, stage, parity, k_scale, v_scale)
        store_attended(sums, total, v_last, rows, sample, head, S, y, sizes, v_ring.dtype, SUMS, formula)


@gluon.jit
def tile_at(
    tile,
    scales,
    lengths,
    CONSUMER: gl.constexpr,
    sizes: gl.constexpr,
    K: gl.constexpr,
    IS_CAUSAL: gl.constexpr,
):
    """First query of a tile, its sample and head, a consumer's queries, where scales are, blocks of keys."""
    B, H, S, T = lengths
    ROW: gl.constexpr = gl.SliceLayout(1, sums_layout(sizes[2], K.primitive_bitwidth))
    first, sample, head = place_of(tile, gl.cdiv(S, ROWS * CONSUMERS), B, H, ROWS * CONSUMERS, IS_CAUSAL)
    rows = first + CONSUMER * ROWS + gl.arange(0, ROWS, ROW)
    block_scales = scales_of(scales, sample, head, lengths, sizes)
    return first, sample, head, rows, block_scales, blocks_of(first, T, ROWS * CONSUMERS, sizes[2], IS_CAUSAL)


@gluon.jit
def await_queries(slot, parity, rings, barriers, scale, CONSUMER: gl.constexpr, sizes: gl.constexpr):
    """Wait for a slot of queries and make the codes of a consumer's part; the factors of its scores."""
    q_ring, q_codes, k_ring, _, _ = rings
    _, _, q_full, q_empty, _ = barriers
    SCORES: gl.constexpr = sums_layout(sizes[2], k_ring.dtype.primitive_bitwidth)
    mbarrier.wait(q_full.index(slot), parity)
    row_scale = gl.full([ROWS], 1.0, gl.float32, gl.SliceLayout(1, SCORES)) * scale
    if k_ring.dtype.primitive_bitwidth == 8:
        queries = q_ring.index(slot * CONSUMERS + CONSUMER).reshape([ROWS, sizes[3]])
        codes = q_codes.index(CONSUMER).reshape([ROWS, sizes[3]])
        row_scale = row_scale * code_rows(queries, codes, q_empty.index(slot), SCORES)
    return row_scale


@gluon.jit
def queries_at(slot, rings, CONSUMER: gl.constexpr, BLOCK_D: gl.constexpr):
    """A consumer's part of a slot of queries, or the codes that it made."""
    q_ring, q_codes, k_ring, _, _ = rings
    if k_ring.dtype.primitive_bitwidth == 8:
        queries = q_codes.index(CONSUMER)
    else:
        queries = q_ring.index(slot * CONSUMERS + CONSUMER)
    return queries.reshape([ROWS, BLOCK_D])


@gluon.jit
def begin(
    place,
    row_scale,
    q_tile,
    more,
    stage,
    parity,
    rings,
    barriers,
    T,
    scale,
    sizes: gl.constexpr,
    how: gl.constexpr,
):
    """The scores of a tile's first block with keys to be seen, and the largest of every row.

    Args:
        more: blocks behind this tile, 0 for none and 2 at most.
    """
    _, _, _, rows, block_scales, blocks = place
    _, _, k_ring, v_ring, mask_ring = rings
    full, empty, _, _, _ = barriers
    BLOCK_N: gl.constexpr = sizes[2]
    BLOCK_D: gl.constexpr = sizes[3]
    STAGES: gl.constexpr = sizes[4]
    SCORES: gl.constexpr = sums_layout(BLOCK_N, k_ring.dtype.primitive_bitwidth)
    mbarrier.wait(full.index(stage), parity)
    if how[2]:
        # What is padded at the end of a sample is hidden from all queries.
        while (blocks > 1) & (not mask_differs(mask_ring, stage, -INF, T - (blocks - 1) * BLOCK_N)):
            fence_async_shared()
            mbarrier.arrive(empty.index(stage), count=1)
            stage, parity = next_stage(stage, parity, STAGES)
            mbarrier.wait(full.index(stage), parity)
            blocks -= 1
        is_masked = mask_differs(mask_ring, stage, 0.0, BLOCK_N)
    k_scale, v_scale = load_scales(block_scales, blocks - 1, k_ring.dtype, v_ring.dtype)
    scores = multiply_scores(q_tile, k_ring.index(stage).reshape([BLOCK_N, BLOCK_D]), SCORES)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    if how[2]:
        if is_masked:
            scores = add_mask(scores, mask_ring, stage, scale, SCORES)
    scores = hide_unseen(scores, rows, (blocks - 1) * BLOCK_N, T, SCORES, how[0])
    none = gl.full([ROWS], -INF, gl.float32, gl.SliceLayout(1, SCORES))
    peak, shrink = peak_of(scores, row_scale * k_scale, none)
    following, next_parity = next_stage(stage, parity, STAGES)
    has_more = blocks + more > 1
    mbarrier.wait(full.index(gl.where(has_more, following, stage)), gl.where(has_more, next_parity, parity))
    gl.thread_barrier()  # else the compiler puts one into the loop, before its wait
    return blocks, row_scale, scores, peak, shrink, stage, parity, k_scale, v_scale


@gluon.jit
def attend(
    state,
    block,
    here,
    behind,
    rings,
    ones,
    barriers,
    CONSUMER: gl.constexpr,
    sizes: gl.constexpr,
    how: gl.constexpr,
    MASKED: gl.constexpr,
):
    """The weights of a block, the product of their values, and the next block's largest score.

    Behind the first block, the last one to be taken, that is one of the next tile; where there is none the
    block's own scores are multiplied once more. Nothing is unfinished before or after.

    Args:
        here: of the tile that the block is of.
        behind: of the next one: queries, scales, blocks, those behind this tile or 0, slot and its parity.
    """
    scores, peak, shrink, totals, sums, stage, parity, row_scale, k_scale, v_scale, v_before, turn = state
    rows, block_scales, slot, T, scale = here
    next_rows, next_block_scales, next_blocks, more, next_slot, q_parity = behind
    _, _, k_ring, v_ring, mask_ring = rings
    full, empty, _, q_empty, turns = barriers
    BLOCK_N: gl.constexpr = sizes[2]
    BLOCK_D: gl.constexpr = sizes[3]
    STAGES: gl.constexpr = sizes[4]
    SCORES: gl.constexpr = sums_layout(BLOCK_N, k_ring.dtype.primitive_bitwidth)
    SUMS: gl.constexpr = sums_layout(BLOCK_D, v_ring.dtype.primitive_bitwidth)
    TOTALS: gl.constexpr = sums_layout(COUNTS, v_ring.dtype.primitive_bitwidth)
    is_last = block == 0
    rest = block + more
    following, next_parity = next_stage(stage, parity, STAGES)
    later, later_parity = next_stage(following, next_parity, STAGES)
    there = gl.where(rest == 0, stage, following)
    there_parity = gl.where(rest == 0, parity, next_parity)
    next_scale = row_scale
    if is_last & (more > 0):
        # No product reads this tile's queries any more; two tiles on may wait for their slot.
        if k_ring.dtype.primitive_bitwidth > 8:
            mbarrier.arrive(q_empty.index(slot), count=1)
        next_scale = await_queries(next_slot, q_parity, rings, barriers, scale, CONSUMER, sizes)
    q_tile = queries_at(gl.where(is_last, next_slot, slot), rings, CONSUMER, BLOCK_D)
    next_block = gl.where(is_last, next_blocks, block) - 1
    first_scale = gl.where(is_last, next_block_scales[2], block_scales[2])
    next_places = (block_scales[0], block_scales[1], first_scale)
    k_next, v_next = load_scales(next_places, next_block, k_ring.dtype, v_ring.dtype)
    if how[3]:
        mbarrier.wait(turns.index(CONSUMER), turn)
    weights = weights_of(scores, row_scale * k_scale, peak, v_ring.dtype, SUMS, how[1])
    growth = shrink
    if v_ring.dtype.primitive_bitwidth == 8:
        growth = shrink * (v_before * reciprocal(v_scale))
    ahead = multiply_scores(q_tile, k_ring.index(there).reshape([BLOCK_N, BLOCK_D]), SCORES)
    if v_ring.dtype.primitive_bitwidth > 8:
        sums = sums * over_columns(growth, SUMS)
    part = multiply_values(weights, v_ring.index(stage), sums, BLOCK_N, BLOCK_D)
    counts = gl.zeros((ROWS, COUNTS), gl.float32, TOTALS)
    counts = warpgroup_mma(weights, ones.permute((1, 0)), counts, use_acc=False, is_async=True)
    if how[3]:
        mbarrier.arrive(turns.index(1 - CONSUMER), count=1)
    totals = totals * over_columns(shrink, TOTALS)
    if how[2]:
        is_masked = mask_differs(mask_ring, there, 0.0, BLOCK_N)

    scores = warpgroup_mma_wait(2, deps=(ahead,))
    if how[2]:
        if is_masked:
            scores = add_mask(scores, mask_ring, there, scale, SCORES)
    elif MASKED:
        scores = hide_unseen(scores, rows, next_block * BLOCK_N, T, SCORES, how[0])
    elif is_last & how[4] & (how[0] | (T % BLOCK_N != 0)):
        scores = hide_unseen(scores, next_rows, next_block * BLOCK_N, T, SCORES, how[0])
    if how[4]:
        none = gl.full([ROWS], -INF, gl.float32, gl.SliceLayout(1, SCORES))
        peak = gl.where(is_last, none, peak)
    peak, shrink = peak_of(scores, next_scale * k_next, peak)
    awaited = gl.where(rest > 1, later, there)
    mbarrier.wait(full.index(awaited), gl.where(rest > 1, later_parity, there_parity))
    part, counts = warpgroup_mma_wait(0, deps=(part, counts))
    if v_ring.dtype.primitive_bitwidth == 8:
        sums = sums * over_columns(growth, SUMS) + part
    else:
        sums = part
    if how[2]:
        # What was read by threads is given back to the copy engine.
        fence_async_shared()
    mbarrier.arrive(empty.index(stage), count=1)
    return (
        scores, peak, shrink, totals + counts, sums, following, next_parity, next_scale, k_next, v_next,
        v_scale, turn ^ 1,
    )  # fmt: skip


@gluon.jit
def place_of(tile, tiles, B, H, QUERIES: gl.constexpr, IS_CAUSAL: gl.constexpr):
    """First query, sample and head of a tile: queries of a head in turn, or tiles with most keys first."""
    if IS_CAUSAL:
        first = (tiles - 1 - tile // (B * H)) * QUERIES
        place = tile % (B * H)
    else:
        first = tile % tiles * QUERIES
        place = tile // tiles
    return first, place // H, place % H


@gluon.jit
def blocks_of(first, T, QUERIES: gl.constexpr, BLOCK_N: gl.constexpr, IS_CAUSAL: gl.constexpr):
    """Blocks of keys that a tile's queries see."""
    end = T
    if IS_CAUSAL:
        end = gl.minimum(T, first + QUERIES)
    return gl.cdiv(end, BLOCK_N)
