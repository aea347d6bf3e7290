# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(scale * q @ k^T + mask) @ v) with keys and values read once for a head, in Gluon.

q [B, H, S, D], k and v [B, G, T, D], float16 or bfloat16; the mask, where there is one, is added: float16, a
row for all queries or one for each. One program per multiprocessor walks units: a head and some rounds of its
queries, in each of which every consumer has 64. Its producer, a warp, loads keys and values in blocks, the
last block first, into a ring of STAGES stages. A head with no more blocks than stages stays there for all
rounds of its unit; of a longer one the blocks are loaded again in every round.

Blocks are numbered as they are loaded: block s lies in stage s % STAGES, in round s // STAGES of the ring.
What keeps them apart:

full[stage]   completes once for every round of the ring, when the block is there, and its part of a mask
              that is a row; the producer arrives once with the bytes it expects. Consumers wait for the
              parity of the block's round.
empty[stage]  completes once for every round of the ring, when each consumer has arrived, behind the last
              product that reads the block. The producer waits before round r for completion r - 1; before
              round 0 for the parity of the phase before the first, which counts as complete.
mask_full[slot], mask_empty[slot]  the same for blocks of a mask with rows, one for every consumer.

A consumer's products of a block's values go on while it weighs the next block, and so do the next scores
while it rescales its sums. Consumers do not wait for each other but for room in the ring: while one weighs,
the others multiply.
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

from quantrt.kernels.attention_fragments.triton_kernel import over_columns, store_attended, sums_layout
from quantrt.kernels.functions.triton_kernel import INF, LOG2E, exp2

__all__ = ["attention_resident"]

WARPS = gl.constexpr(4)
"""Of a consumer."""
ROWS = gl.constexpr(64)
"""Queries of a consumer."""
LN2 = gl.constexpr(0.6931471805599453)


@gluon.jit
def attention_resident(
    q_ptr,
    k_desc,
    v_desc,
    mask_desc,
    y0_ptr,
    y1_ptr,
    arg0,
    arg1,
    arg2,
    arg3,
    B,
    H,
    S,
    T,
    rounds,
    q_b,
    q_h,
    q_s,
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
    KINDS: gl.constexpr,
    PROGRAM: gl.constexpr,
    OUTPUTS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    MASK_SLOTS: gl.constexpr,
):
    gl.static_assert(CONSUMERS == 2 or CONSUMERS == 3)
    k_ring = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], k_desc.layout)
    v_ring = gl.allocate_shared_memory(v_desc.dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], v_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    masks = (0, 0, 0, mask_b, mask_h)
    if MASK != "none":
        PARTS: gl.constexpr = MASK_SLOTS * CONSUMERS if HAS_MASK_ROWS else STAGES
        mask_ring = gl.allocate_shared_memory(
            mask_desc.dtype, [PARTS] + mask_desc.block_type.shape, mask_desc.layout
        )
        masks = (mask_ring, 0, 0, mask_b, mask_h)
        if HAS_MASK_ROWS:
            mask_full = gl.allocate_shared_memory(gl.int64, [MASK_SLOTS, 1], mbarrier.MBarrierLayout())
            mask_empty = gl.allocate_shared_memory(gl.int64, [MASK_SLOTS, 1], mbarrier.MBarrierLayout())
            for i in gl.static_range(MASK_SLOTS):
                mbarrier.init(mask_full.index(i), count=1)
                mbarrier.init(mask_empty.index(i), count=CONSUMERS)
            masks = (mask_ring, mask_full, mask_empty, mask_b, mask_h)
    fence_async_shared()

    rings = (k_ring, v_ring, full, empty)
    lengths = (B, H, S, T, rounds)
    q = (q_ptr, q_b, q_h, q_s, scale)
    y = ((y0_ptr, y1_ptr), (y_b, y_h, y_s), (arg0, arg1, arg2, arg3))
    sizes: gl.constexpr = (GROUPS, D, BLOCK_N, BLOCK_D, STAGES, UNIT, CONSUMERS)
    how: gl.constexpr = ("rows" if HAS_MASK_ROWS else "none" if MASK == "none" else "row", MASK_SLOTS)
    formula: gl.constexpr = (KINDS, PROGRAM, OUTPUTS)
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (consume, (q, rings, masks, lengths, y, 0, sizes, how, formula)),
                (consume, (q, rings, masks, lengths, y, 1, sizes, how, formula)),
                (produce, (rings, masks, k_desc, v_desc, mask_desc, lengths, sizes, how)),
            ],
            [WARPS, 1],
            [240, 24],
        )
    else:
        gl.warp_specialize(
            [
                (consume, (q, rings, masks, lengths, y, 0, sizes, how, formula)),
                (consume, (q, rings, masks, lengths, y, 1, sizes, how, formula)),
                (consume, (q, rings, masks, lengths, y, 2, sizes, how, formula)),
                (produce, (rings, masks, k_desc, v_desc, mask_desc, lengths, sizes, how)),
            ],
            [WARPS, WARPS, 1],
            [160, 160, 24],
        )


@gluon.jit
def produce(rings, masks, k_desc, v_desc, mask_desc, lengths, sizes: gl.constexpr, how: gl.constexpr):
    """Load the keys and values of all units of this program, and blocks of their masks."""
    k_ring, v_ring, full, empty = rings
    mask_ring, mask_full, mask_empty, mask_b, mask_h = masks
    B, H, S, T, rounds = lengths
    GROUPS: gl.constexpr = sizes[0]
    BLOCK_N: gl.constexpr = sizes[2]
    STAGES: gl.constexpr = sizes[4]
    CONSUMERS: gl.constexpr = sizes[6]
    MASK_BYTES: gl.constexpr = mask_desc.block_type.nbytes if how[0] == "row" else 0
    BLOCK_BYTES: gl.constexpr = k_desc.block_type.nbytes + v_desc.block_type.nbytes + MASK_BYTES
    blocks = gl.cdiv(T, BLOCK_N)
    all_rounds = gl.cdiv(S, ROWS * CONSUMERS)
    parts = gl.cdiv(all_rounds, rounds)
    stage = 0
    parity = 1
    slot = 0
    slot_parity = 1
    for unit in range(gl.program_id(0), B * H * parts, gl.num_programs(0)):
        first = unit % parts * rounds
        sample = unit // parts // H
        head = unit // parts % H
        count = gl.minimum(rounds, all_rounds - first)
        for i in range(count * blocks):
            key = (blocks - 1 - i % blocks) * BLOCK_N
            if (i < blocks) | (blocks > STAGES):
                mbarrier.wait(empty.index(stage), parity)
                there = full.index(stage)
                mbarrier.expect(there, BLOCK_BYTES)
                if how[0] == "row":
                    tma.async_copy_global_to_shared(
                        mask_desc, [sample * mask_b, head * mask_h, 0, key], there, mask_ring.index(stage)
                    )
                tma.async_copy_global_to_shared(
                    k_desc, [sample, head // GROUPS, key, 0], there, k_ring.index(stage)
                )
                tma.async_copy_global_to_shared(
                    v_desc, [sample, head // GROUPS, key, 0], there, v_ring.index(stage)
                )
                stage, parity = next_stage(stage, parity, STAGES)
            if how[0] == "rows":
                mbarrier.wait(mask_empty.index(slot), slot_parity)
                has = mask_full.index(slot)
                mbarrier.expect(has, CONSUMERS * mask_desc.block_type.nbytes)
                row = (first + i // blocks) * (ROWS * CONSUMERS)
                for c in gl.static_range(CONSUMERS):
                    tma.async_copy_global_to_shared(
                        mask_desc,
                        [sample * mask_b, head * mask_h, row + c * ROWS, key],
                        has,
                        mask_ring.index(slot * CONSUMERS + c),
                    )
                slot, slot_parity = next_stage(slot, slot_parity, how[1])


@gluon.jit
def consume(
    q,
    rings,
    masks,
    lengths,
    y,
    CONSUMER: gl.constexpr,
    sizes: gl.constexpr,
    how: gl.constexpr,
    formula: gl.constexpr,
):
    """Attend for 64 queries, where there are, in every round of this program's units.

    Consumers change places from unit to unit: where a head's last round has too few, others go ahead.
    """
    B, H, S, T, rounds = lengths
    STAGES: gl.constexpr = sizes[4]
    CONSUMERS: gl.constexpr = sizes[6]
    blocks = gl.cdiv(T, sizes[2])
    all_rounds = gl.cdiv(S, ROWS * CONSUMERS)
    parts = gl.cdiv(all_rounds, rounds)
    units = B * H * parts
    begin = 0
    begin_parity = 0
    slot = 0
    slot_parity = 0
    turn = CONSUMER + 0
    queries = load_queries(q, gl.program_id(0), 0, turn, parts, lengths, sizes)
    for unit in range(gl.program_id(0), units, gl.num_programs(0)):
        first = unit % parts * rounds
        count = gl.minimum(rounds, all_rounds - first)
        later_unit = gl.minimum(unit + gl.num_programs(0), units - 1)
        later_turn = (turn + 1) % CONSUMERS
        for r in range(count):
            row = ((first + r) * CONSUMERS + turn) * ROWS
            is_last = r == count - 1
            lets_go = is_last | (blocks > STAGES)
            place = (unit // parts // H, unit // parts % H, row, blocks, lets_go, begin, begin_parity, turn)
            ahead = (
                gl.where(is_last, later_unit, unit),
                gl.where(is_last, 0, r + 1),
                gl.where(is_last, later_turn, turn),
            )
            if row < S:
                queries, slot, slot_parity = attend_all(
                    queries, slot, slot_parity, place, ahead, q, rings, masks, lengths, y, sizes, how, formula
                )
            else:
                slot, slot_parity = pass_over(slot, slot_parity, place, rings, masks, sizes, how)
                queries = load_queries(q, ahead[0], ahead[1], ahead[2], parts, lengths, sizes)
            end = begin + blocks
            begin = gl.where(lets_go, end % STAGES, begin)
            begin_parity = gl.where(lets_go, begin_parity ^ (end // STAGES & 1), begin_parity)
        turn = (turn + 1) % CONSUMERS


@gluon.jit
def attend_all(
    queries,
    slot,
    slot_parity,
    place,
    ahead,
    q,
    rings,
    masks,
    lengths,
    y,
    sizes: gl.constexpr,
    how: gl.constexpr,
    formula: gl.constexpr,
):
    """Attend for 64 queries, and load the next ones as soon as there is room for them."""
    k_ring, v_ring, full, empty = rings
    sample, head, row, blocks, lets_go, stage, parity, turn = place
    B, H, S, T, rounds = lengths
    BLOCK_N: gl.constexpr = sizes[2]
    BLOCK_D: gl.constexpr = sizes[3]
    STAGES: gl.constexpr = sizes[4]
    CONSUMERS: gl.constexpr = sizes[6]
    SCORES: gl.constexpr = sums_layout(BLOCK_N, 16)
    SUMS: gl.constexpr = sums_layout(BLOCK_D, 16)
    ROW: gl.constexpr = gl.SliceLayout(1, SCORES)
    mbarrier.wait(full.index(stage), parity)
    given, slot, slot_parity = load_mask(masks, stage, slot, slot_parity, turn, sizes, how)
    begin = 0
    if how[0] == "row":
        # What is padded at the end is hidden from all queries.
        while (begin + 1 < blocks) & is_hidden(given):
            mbarrier.arrive(empty.index(stage), count=1, pred=lets_go)
            stage, parity = next_stage(stage, parity, STAGES)
            mbarrier.wait(full.index(stage), parity)
            given, slot, slot_parity = load_mask(masks, stage, slot, slot_parity, turn, sizes, how)
            begin += 1
    following, next_parity = next_stage(stage, parity, STAGES)
    has_more = begin + 1 < blocks
    scores = multiply_scores(queries, k_ring.index(stage), SCORES)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    keys = (blocks - 1 - begin) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, SCORES))
    scores = gl.where((keys < T)[None, :], scores, -INF)
    x, peak, shrink = weigh(scores, given, q[4], gl.full([ROWS], -INF, gl.float32, ROW), how)
    total = gl.full([ROWS], 0.0, gl.float32, ROW)
    sums = gl.full([ROWS, BLOCK_D], 0.0, gl.float32, SUMS)
    mbarrier.wait(full.index(gl.where(has_more, following, stage)), gl.where(has_more, next_parity, parity))
    state = (x, peak, shrink, total, sums, stage + 0, parity + 0, slot, slot_parity)
    for i in range(begin, blocks - 1):
        state = attend(state, i, queries, blocks, lets_go, turn, q[4], rings, masks, sizes, how)
    x, peak, shrink, total, sums, end, end_parity, slot, slot_parity = state
    parts = gl.cdiv(gl.cdiv(S, ROWS * CONSUMERS), rounds)
    queries = load_queries(q, ahead[0], ahead[1], ahead[2], parts, lengths, sizes)
    weights, total = weights_of(x, peak, shrink, total, q[4], v_ring.dtype, SUMS, how)
    sums = sums * over_columns(shrink, SUMS)
    sums = multiply_values(weights, v_ring.index(end), sums)
    sums = warpgroup_mma_wait(0, deps=(sums,))
    mbarrier.arrive(empty.index(end), count=1, pred=lets_go)
    rows = row + gl.arange(0, ROWS, ROW)
    store_attended(sums, total, (0, 0, 0), rows, sample, head, S, y, sizes, v_ring.dtype, SUMS, formula)
    return queries, slot, slot_parity


@gluon.jit
def is_hidden(given):
    """Whether a part of a row of the mask hides all keys; by a shuffle, so that it is seen to be uniform."""
    hidden = (gl.max(given, axis=0).to(gl.float32) == -INF).to(gl.int32)
    same = gl.inline_asm_elementwise(
        "shfl.sync.idx.b32 $0, $1, 0, 31, -1;", "=r,r", [hidden], dtype=gl.int32, is_pure=False, pack=1
    )
    return same != 0


@gluon.jit
def pass_over(slot, slot_parity, place, rings, masks, sizes: gl.constexpr, how: gl.constexpr):
    """Let go of what others attend to in a round without queries of this consumer."""
    _, _, full, empty = rings
    _, _, _, blocks, lets_go, stage, parity, turn = place
    STAGES: gl.constexpr = sizes[4]
    here = stage + 0
    here_parity = parity + 0
    for _ in range(blocks):
        mbarrier.wait(full.index(here), here_parity)
        mbarrier.arrive(empty.index(here), count=1, pred=lets_go)
        here, here_parity = next_stage(here, here_parity, STAGES)
        if how[0] == "rows":
            mbarrier.wait(masks[1].index(slot), slot_parity)
            mbarrier.arrive(masks[2].index(slot), count=1)
            slot, slot_parity = next_stage(slot, slot_parity, how[1])
    return slot, slot_parity


@gluon.jit
def attend(
    state,
    i,
    queries,
    blocks,
    lets_go,
    turn,
    scale,
    rings,
    masks,
    sizes: gl.constexpr,
    how: gl.constexpr,
):
    """The weights of block i from the last, the product of their values, and the next block's largest score.

    Nothing is unfinished before or after.
    """
    x, peak, shrink, total, sums, stage, parity, slot, slot_parity = state
    k_ring, v_ring, full, empty = rings
    STAGES: gl.constexpr = sizes[4]
    SCORES: gl.constexpr = sums_layout(sizes[2], 16)
    SUMS: gl.constexpr = sums_layout(sizes[3], 16)
    following, next_parity = next_stage(stage, parity, STAGES)
    later, later_parity = next_stage(following, next_parity, STAGES)
    weights, total = weights_of(x, peak, shrink, total, scale, v_ring.dtype, SUMS, how)
    sums = sums * over_columns(shrink, SUMS)
    ahead = multiply_scores(queries, k_ring.index(following), SCORES)
    sums = multiply_values(weights, v_ring.index(stage), sums)
    given, slot, slot_parity = load_mask(masks, following, slot, slot_parity, turn, sizes, how)
    scores = warpgroup_mma_wait(1, deps=(ahead,))
    x, peak, shrink = weigh(scores, given, scale, peak, how)
    has_more = i + 2 < blocks
    mbarrier.wait(
        full.index(gl.where(has_more, later, following)), gl.where(has_more, later_parity, next_parity)
    )
    sums = warpgroup_mma_wait(0, deps=(sums,))
    mbarrier.arrive(empty.index(stage), count=1, pred=lets_go)
    return x, peak, shrink, total, sums, following, next_parity, slot, slot_parity


@gluon.jit
def weigh(scores, given, scale, largest, how: gl.constexpr):
    """Scores with the mask; the largest so far as an exponent of 2, and what becomes of earlier weights."""
    if how[0] == "none":
        x = scores
        unit = scale
    else:
        added = given.to(gl.float32)
        if how[0] == "row":
            added = added[None, :]
        x = scores * (scale * LN2) + added
        unit = LOG2E
    peak = gl.maximum(largest, gl.max(x, axis=1) * unit)
    return x, peak, exp2(largest - base_of(peak, how))


@gluon.jit
def base_of(peak, how: gl.constexpr):
    """What is taken off: a query that has seen nothing yet has no largest score."""
    base = peak
    if how[0] != "none":
        base = gl.where(peak == -INF, 0.0, peak)
    return base


@gluon.jit
def weights_of(x, peak, shrink, total, scale, ELEMENT: gl.constexpr, SUMS: gl.constexpr, how: gl.constexpr):
    """The weights of a block as the left factor of a product, and the sum of all so far."""
    LEFT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=SUMS, k_width=2)
    unit = scale
    if how[0] != "none":
        unit = LOG2E
    p = exp2(x * unit - base_of(peak, how)[:, None])
    total = total * shrink + gl.sum(p, axis=1)
    return gl.convert_layout(p.to(ELEMENT), LEFT, assert_trivial=True), total


@gluon.jit
def load_mask(masks, stage, slot, slot_parity, turn, sizes: gl.constexpr, how: gl.constexpr):
    """The mask of the block of keys in a stage, which is there; and where rows of the next one will be."""
    BLOCK_N: gl.constexpr = sizes[2]
    SCORES: gl.constexpr = sums_layout(BLOCK_N, 16)
    if how[0] == "none":
        given = slot
    elif how[0] == "row":
        given = masks[0].index(stage).reshape([BLOCK_N]).load(gl.SliceLayout(0, SCORES))
    else:
        mask_ring, mask_full, mask_empty, _, _ = masks
        mbarrier.wait(mask_full.index(slot), slot_parity)
        given = mask_ring.index(slot * sizes[6] + turn).reshape([ROWS, BLOCK_N]).load(SCORES)
        mbarrier.arrive(mask_empty.index(slot), count=1)
        slot, slot_parity = next_stage(slot, slot_parity, how[1])
    return given, slot, slot_parity


@gluon.jit
def load_queries(q, unit, r, turn, parts, lengths, sizes: gl.constexpr):
    """64 queries as the left factor of a product; rows beyond the last like the last one."""
    q_ptr, q_b, q_h, q_s, _ = q
    B, H, S, T, rounds = lengths
    D: gl.constexpr = sizes[1]
    BLOCK_D: gl.constexpr = sizes[3]
    UNIT: gl.constexpr = sizes[5]
    SCORES: gl.constexpr = sums_layout(sizes[2], 16)
    LEFT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=SCORES, k_width=2)
    sample = unit // parts // H
    head = unit // parts % H
    first = ((unit % parts * rounds + r) * sizes[6] + turn) * ROWS
    places = gl.minimum(first + gl.arange(0, ROWS, gl.SliceLayout(1, LEFT)), S - 1)
    columns = gl.arange(0, BLOCK_D, gl.SliceLayout(0, LEFT))
    start = (sample.to(gl.int64) * q_b + head.to(gl.int64) * q_h) * UNIT
    offsets = places[:, None] * (q_s * UNIT) + columns[None, :]
    if D != BLOCK_D:
        x = gl.load(q_ptr + start + offsets, mask=(columns < D)[None, :], other=0.0)
    else:
        x = gl.load(q_ptr + start + offsets)
    return x


@gluon.jit
def multiply_scores(queries, k, SCORES: gl.constexpr):
    """queries @ k^T, begun."""
    BLOCK_N: gl.constexpr = k.shape[2]
    BLOCK_D: gl.constexpr = k.shape[3]
    zeros = gl.zeros((ROWS, BLOCK_N), gl.float32, SCORES)
    keys = k.reshape([BLOCK_N, BLOCK_D]).permute((1, 0))
    return warpgroup_mma(queries, keys, zeros, use_acc=False, is_async=True)


@gluon.jit
def multiply_values(weights, v, sums):
    """sums + weights @ v, begun."""
    values = v.reshape([v.shape[2], v.shape[3]])
    return warpgroup_mma(weights, values, sums, is_async=True)


@gluon.jit
def next_stage(stage, parity, STAGES: gl.constexpr):
    """The next one, and the parity of its round."""
    is_last = stage == STAGES - 1
    return gl.where(is_last, 0, stage + 1), gl.where(is_last, parity ^ 1, parity)
