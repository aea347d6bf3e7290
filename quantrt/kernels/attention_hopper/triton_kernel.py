# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(scale * q @ k^T + mask) @ v) with a producer and two consumers, in Gluon.

q [B, H, S, D], k [B, G, T, D]: int8 or FP8 codes with a scale for every row of q and every BLOCK_N rows of
k, that of q holding scale * log2(e) too; or float16 or bfloat16 without scales. v: FP8 codes [B, G, D, T']
with a scale for every BLOCK_N keys, its rows and keys in the orders of `kernels.attention_codes.spec`; or
floats [B, G, T, D] as they are. The mask, float16, is a row for all queries of a sample or a head; it comes
with the keys of a block, and goes with scores of floats alone. Zhang et al., "SageAttention2", arXiv
2411.10958, for the formats; Shah et al., "FlashAttention-3", arXiv 2407.08608, for the schedule.

One program per multiprocessor walks tiles program_id, program_id + programs, ... of 128 queries.
Its producer, a warp, loads the queries of every tile and its keys in blocks, the last block first. Each
consumer has 64 of the queries and all keys. Its products of a block's weights and values go on while it looks
for the largest score of the next block; the other one turns scores into weights meanwhile. The last blocks
are those that are masked: scores of keys that are not seen are such that their weights are 0.

The sums of a block's weights are a product too, with 8 columns of ones: additions for each of them would take
as many instructions as the exponentials do. FP8 sums keep 14 bits or so inside the tensor cores, and what is
behind those is cut off: over 16,384 keys a third of a sum of one sign was lost on an H200. So sums of a block
are taken out and added in float32.

Blocks are numbered through all tiles of a program. Block s lies in stage s % STAGES, in round s // STAGES of
the ring; queries of the program's tile t in slot t % 2. What keeps them apart:

full[stage]   completes once for every round, when the block's keys and values are there; the producer arrives
              once with the bytes it expects. Consumers wait for the parity of the block's round.
empty[stage]  completes once for every round, when each consumer has arrived: after a wait that leaves no
              product unfinished that reads the stage. The producer waits before round r for completion r - 1;
              before round 0 for the parity of the phase before the first, which counts as complete.
q_full, q_empty  the same for slots of queries. A consumer lets go of them after the last scores of a tile.
turns[consumer]  with TURNS: completes when the other one has begun the products of a step. The first step of
              the first consumer does not wait. Both have as many steps.

A consumer waits for block s + 2 before it lets go of block s: there are 3 stages at least.

Products run beside instructions only where the assembler leaves these where they were written: it takes waits
for products before what does not depend on them. The wait for block s + 2, a loop, keeps the wait for the
values' product behind the largest score.
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

from quantrt.kernels.jit.attention_fragments import (
    HIDDEN,
    add_mask,
    blocks_of,
    hide_unseen,
    load_scales,
    mask_differs,
    multiply_scores,
    multiply_values,
    ones_of,
    over_columns,
    peak_of,
    place_of,
    scales_of,
    store_attended,
)
from quantrt.kernels.jit.attention_weights import weights_of
from quantrt.kernels.jit.functions import INF, await_kernels_before, reciprocal
from quantrt.kernels.jit.ring import next_stage, sums_layout

__all__ = ["attention_hopper"]

WARPS = gl.constexpr(4)
"""Of a consumer."""
ROWS = gl.constexpr(64)
"""Queries of a consumer."""
CONSUMERS = gl.constexpr(2)
COUNTS = gl.constexpr(8)
"""Columns of ones: the fewest that a product has."""


@gluon.jit
def attention_hopper(
    q_desc,
    k_desc,
    v_desc,
    mask_desc,
    q_scale_ptr,
    k_scale_ptr,
    v_scale_ptr,
    pointers,
    slots,
    B,
    H,
    S,
    T,
    mask_b,
    mask_h,
    y_b,
    y_h,
    y_s,
    scale,
    UNIT: gl.constexpr,
    MASK_UNIT: gl.constexpr,
    GROUPS: gl.constexpr,
    D: gl.constexpr,
    MASK: gl.constexpr,
    HAS_MASK_ROWS: gl.constexpr,
    IS_CAUSAL: gl.constexpr,
    KINDS: gl.constexpr,
    PROGRAM: gl.constexpr,
    OUTPUTS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    STAGES: gl.constexpr,
    LINES: gl.constexpr,
    TURNS: gl.constexpr,
):
    gl.static_assert(STAGES >= 3)
    q_ring = gl.allocate_shared_memory(q_desc.dtype, [2 * CONSUMERS, 1, 1, ROWS, BLOCK_D], q_desc.layout)
    k_ring = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], k_desc.layout)
    v_ring = gl.allocate_shared_memory(v_desc.dtype, [STAGES] + v_desc.block_type.shape, v_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    V_BITS: gl.constexpr = v_desc.dtype.primitive_bitwidth
    ones = gl.allocate_shared_memory(
        v_desc.dtype,
        [COUNTS, BLOCK_N],
        gl.NVMMASharedLayout(min(128, BLOCK_N * V_BITS // 8), V_BITS, 2),
        ones_of(v_desc.dtype, [COUNTS, BLOCK_N], gl.BlockedLayout([1, 8], [2, 16], [WARPS, 1], [1, 0])),
    )
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    for i in gl.static_range(2):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=CONSUMERS)
    turns = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(CONSUMERS):
        mbarrier.init(turns.index(i), count=1)
    fence_async_shared()

    mask_ring = 0
    if MASK != "none":
        mask_ring = gl.allocate_shared_memory(
            mask_desc.dtype, [STAGES] + mask_desc.block_type.shape, mask_desc.layout
        )
    rings = (q_ring, k_ring, v_ring, mask_ring)
    barriers = (full, empty, q_full, q_empty, turns)
    scales = (q_scale_ptr, k_scale_ptr, v_scale_ptr, scale)
    lengths = (B, H, S, T)
    y = (pointers, (y_b, y_h, y_s), slots)
    sizes: gl.constexpr = (GROUPS, D, BLOCK_N, BLOCK_D, STAGES, UNIT)
    how: gl.constexpr = (IS_CAUSAL, LINES, MASK != "none", TURNS)
    masks = (mask_desc, mask_b, mask_h)
    formula: gl.constexpr = (KINDS, PROGRAM, OUTPUTS)
    gl.warp_specialize(
        [
            (consume, (rings, ones, barriers, scales, lengths, y, 0, sizes, how, formula)),
            (consume, (rings, ones, barriers, scales, lengths, y, 1, sizes, how, formula)),
            (produce, (rings, barriers, q_desc, k_desc, v_desc, masks, lengths, sizes, how)),
        ],
        [WARPS, 1],
        [240, 24],
    )


@gluon.jit
def produce(rings, barriers, q_desc, k_desc, v_desc, masks, lengths, sizes: gl.constexpr, how: gl.constexpr):
    """Load queries, keys, values and what is masked of all tiles of this program."""
    q_ring, k_ring, v_ring, mask_ring = rings
    mask_desc, mask_b, mask_h = masks
    full, empty, q_full, q_empty, _ = barriers
    B, H, S, T = lengths
    GROUPS: gl.constexpr = sizes[0]
    BLOCK_N: gl.constexpr = sizes[2]
    STAGES: gl.constexpr = sizes[4]
    IS_WIDE: gl.constexpr = v_ring.dtype.primitive_bitwidth > 8
    MASK_BYTES: gl.constexpr = mask_desc.block_type.nbytes if how[2] else 0
    BLOCK_BYTES: gl.constexpr = k_desc.block_type.nbytes + v_desc.block_type.nbytes + MASK_BYTES
    tiles = gl.cdiv(S, ROWS * CONSUMERS)
    await_kernels_before()
    stage = 0
    parity = 1
    slot = 0
    q_parity = 1
    for tile in range(gl.program_id(0), B * H * tiles, gl.num_programs(0)):
        first, sample, head = place_of(tile, tiles, B, H, ROWS * CONSUMERS, how[0])
        mbarrier.wait(q_empty.index(slot), q_parity)
        ready = q_full.index(slot)
        mbarrier.expect(ready, CONSUMERS * q_desc.block_type.nbytes)
        for c in gl.static_range(CONSUMERS):
            tma.async_copy_global_to_shared(
                q_desc, [sample, head, first + c * ROWS, 0], ready, q_ring.index(slot * CONSUMERS + c)
            )
        q_parity = q_parity ^ slot
        slot = slot ^ 1
        blocks = blocks_of(first, T, ROWS * CONSUMERS, BLOCK_N, how[0])
        for i in range(blocks):
            key = (blocks - 1 - i) * BLOCK_N
            mbarrier.wait(empty.index(stage), parity)
            there = full.index(stage)
            mbarrier.expect(there, BLOCK_BYTES)
            if how[2]:
                tma.async_copy_global_to_shared(
                    mask_desc, [sample * mask_b, head * mask_h, 0, key], there, mask_ring.index(stage)
                )
            tma.async_copy_global_to_shared(
                k_desc, [sample, head // GROUPS, key, 0], there, k_ring.index(stage)
            )
            if IS_WIDE:
                tma.async_copy_global_to_shared(
                    v_desc, [sample, head // GROUPS, key, 0], there, v_ring.index(stage)
                )
            else:
                tma.async_copy_global_to_shared(
                    v_desc, [sample, head // GROUPS, 0, key], there, v_ring.index(stage)
                )
            stage, parity = next_stage(stage, parity, STAGES)


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
    q_ring, k_ring, v_ring, mask_ring = rings
    full, empty, q_full, q_empty, _ = barriers
    B, H, S, T = lengths
    BLOCK_N: gl.constexpr = sizes[2]
    BLOCK_D: gl.constexpr = sizes[3]
    STAGES: gl.constexpr = sizes[4]
    IS_CAUSAL: gl.constexpr = how[0]
    V_BITS: gl.constexpr = v_ring.dtype.primitive_bitwidth
    SCORES: gl.constexpr = sums_layout(BLOCK_N, q_ring.dtype.primitive_bitwidth)
    SUMS: gl.constexpr = sums_layout(BLOCK_D, V_BITS)
    TOTALS: gl.constexpr = sums_layout(COUNTS, V_BITS)
    ROW: gl.constexpr = gl.SliceLayout(1, SCORES)
    tiles = gl.cdiv(S, ROWS * CONSUMERS)
    await_kernels_before()
    stage = 0
    parity = 0
    slot = 0
    q_parity = 0
    turn = 1 - CONSUMER
    for tile in range(gl.program_id(0), B * H * tiles, gl.num_programs(0)):
        first, sample, head = place_of(tile, tiles, B, H, ROWS * CONSUMERS, IS_CAUSAL)
        blocks = blocks_of(first, T, ROWS * CONSUMERS, BLOCK_N, IS_CAUSAL)
        rows = first + CONSUMER * ROWS + gl.arange(0, ROWS, ROW)
        row_scale, block_scales = scales_of(scales, sample, head, rows, lengths, sizes, k_ring.dtype)
        q_tile = q_ring.index(slot * CONSUMERS + CONSUMER).reshape([ROWS, BLOCK_D])
        mbarrier.wait(q_full.index(slot), q_parity)
        q_parity = q_parity ^ slot

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
                scores = add_mask(scores, mask_ring, stage, scales[3], SCORES)
        scores = hide_unseen(scores, rows, (blocks - 1) * BLOCK_N, T, SCORES, IS_CAUSAL)
        peak = gl.full([ROWS], -INF, gl.float32, ROW)
        peak, shrink = peak_of(scores, row_scale * k_scale, peak)
        totals = gl.full([ROWS, COUNTS], 0.0, gl.float32, TOTALS)
        sums = gl.full([ROWS, BLOCK_D], 0.0, gl.float32, SUMS)
        following, next_parity = next_stage(stage, parity, STAGES)
        has_more = blocks > 1
        mbarrier.wait(
            full.index(gl.where(has_more, following, stage)), gl.where(has_more, next_parity, parity)
        )
        gl.thread_barrier()  # else the compiler puts one into the loop, before its wait
        state = (scores, peak, shrink, totals, sums, stage, parity, k_scale, v_scale, v_scale, turn)
        place = (q_tile, row_scale, block_scales, rows, T, blocks, scales[3])
        masked = 0
        if IS_CAUSAL and BLOCK_N < ROWS * CONSUMERS:
            masked = gl.maximum(blocks - first // BLOCK_N - 1, 0)
            for i in range(0, masked):
                state = attend(state, i, place, rings, ones, barriers, sizes, how, CONSUMER, True)
        for i in range(masked, blocks):
            state = attend(state, i, place, rings, ones, barriers, sizes, how, CONSUMER, False)
        scores, peak, shrink, totals, sums, stage, parity, k_scale, v_scale, v_last, turn = state
        mbarrier.arrive(q_empty.index(slot), count=1)
        slot = slot ^ 1
        total = gl.convert_layout(gl.max(totals, axis=1), ROW, assert_trivial=True)
        if how[2]:
            total = gl.where(peak < HIDDEN, 0.0, total)
        store_attended(
            sums, total, block_scales, rows, sample, head, S, y, sizes, v_ring.dtype, SUMS, formula
        )


@gluon.jit
def attend(
    state,
    i,
    place,
    rings,
    ones,
    barriers,
    sizes: gl.constexpr,
    how: gl.constexpr,
    CONSUMER: gl.constexpr,
    MASKED: gl.constexpr,
):
    """The weights of block i from the last, the product of their values, and the next block's largest score.

    Behind the first block, the last one to be taken, there is none: its own scores are multiplied once more.
    Nothing is unfinished before or after.
    """
    scores, peak, shrink, totals, sums, stage, parity, k_scale, v_scale, v_before, turn = state
    q_tile, row_scale, block_scales, rows, T, blocks, scale = place
    _, k_ring, v_ring, mask_ring = rings
    full, empty, _, _, turns = barriers
    BLOCK_N: gl.constexpr = sizes[2]
    BLOCK_D: gl.constexpr = sizes[3]
    STAGES: gl.constexpr = sizes[4]
    SCORES: gl.constexpr = sums_layout(BLOCK_N, q_tile.dtype.primitive_bitwidth)
    SUMS: gl.constexpr = sums_layout(BLOCK_D, v_ring.dtype.primitive_bitwidth)
    TOTALS: gl.constexpr = sums_layout(COUNTS, v_ring.dtype.primitive_bitwidth)
    block = blocks - 1 - i
    next_block = gl.maximum(block - 1, 0)
    following, next_parity = next_stage(stage, parity, STAGES)
    later, later_parity = next_stage(following, next_parity, STAGES)
    there = gl.where(block == 0, stage, following)
    k_next, v_next = load_scales(block_scales, next_block, k_ring.dtype, v_ring.dtype)
    if how[3]:
        mbarrier.wait(turns.index(CONSUMER), turn)
    weights = weights_of(scores, row_scale * k_scale, peak, v_ring.dtype, SUMS, how[1])
    growth = shrink
    if v_ring.dtype.primitive_bitwidth == 8:
        growth = shrink * (v_before * reciprocal(v_scale))
    ahead = multiply_scores(q_tile, k_ring.index(there).reshape([BLOCK_N, BLOCK_D]), SCORES)
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
    if MASKED:
        scores = hide_unseen(scores, rows, next_block * BLOCK_N, T, SCORES, True)
    peak, shrink = peak_of(scores, row_scale * k_next, peak)
    awaited = gl.where(block > 1, later, gl.where(block == 1, following, stage))
    awaited_parity = gl.where(block > 1, later_parity, gl.where(block == 1, next_parity, parity))
    mbarrier.wait(full.index(awaited), awaited_parity)
    part, counts = warpgroup_mma_wait(0, deps=(part, counts))
    if v_ring.dtype.primitive_bitwidth == 8:
        sums = sums + part
    else:
        sums = part
    if how[2]:
        # What was read by threads is given back to the copy engine.
        fence_async_shared()
    mbarrier.arrive(empty.index(stage), count=1)
    totals = totals + counts
    return scores, peak, shrink, totals, sums, following, next_parity, k_next, v_next, v_scale, turn ^ 1
