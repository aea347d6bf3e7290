# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(masked(scale * q @ k^T)) @ v) of float16 or bfloat16 without gaps, in Gluon.

As kernels/attention_hopper: one program per multiprocessor walks tiles of 64 * CONSUMERS queries, its
producer loads queries and blocks of keys and values, the last block of a tile first, and each consumer has 64
of the queries. Barriers, and what they keep apart, are the same, but for turns: there are none.

While a consumer weighs a block, the values of the block before are multiplied, and the scores of the one
behind it; behind the last block of a tile, those of the first block of the consumer's next tile (Shah et al.,
"FlashAttention-3", arXiv 2407.08608, section 3.2). So three blocks in a row are in use: there are three
stages at least. Where no block follows, the scores of the last one are multiplied once more, and nothing is
made of them.

A mask is read by the consumers, one block ahead; it is in units of the exponent of e, so that adding it goes
with scaling the scores, and taking off the largest score with the conversion to powers of two.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma_wait,
)

from quantrt.kernels.attention_fragments.triton_kernel import (
    over_columns,
    store_attended,
    sums_layout,
    weights_of,
)
from quantrt.kernels.attention_hopper.triton_kernel import (
    multiply_scores,
    multiply_values,
    next_stage,
    place_of,
    produce,
)
from quantrt.kernels.functions.triton_kernel import INF, LOG2E, exp2

__all__ = ["attention_floats"]

WARPS = gl.constexpr(4)
"""Of a consumer."""
ROWS = gl.constexpr(64)
"""Queries of a consumer."""


@gluon.jit
def attention_floats(
    q_desc,
    k_desc,
    v_desc,
    mask_ptr,
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
    mask_b,
    mask_h,
    mask_s,
    y_b,
    y_h,
    y_s,
    scale,
    mask_value,
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
):
    gl.static_assert(STAGES >= 3)
    gl.static_assert(CONSUMERS == 2 or CONSUMERS == 3)
    q_ring = gl.allocate_shared_memory(q_desc.dtype, [2 * CONSUMERS, 1, 1, ROWS, BLOCK_D], q_desc.layout)
    k_ring = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], k_desc.layout)
    v_ring = gl.allocate_shared_memory(v_desc.dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], v_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    for i in gl.static_range(2):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=CONSUMERS)
    fence_async_shared()

    rings = (q_ring, k_ring, v_ring)
    barriers = (full, empty, q_full, q_empty, 0)
    masks = (mask_ptr, mask_b, mask_h, mask_s, scale, mask_value)
    lengths = (B, H, S, T)
    y = ((y0_ptr, y1_ptr), (y_b, y_h, y_s), (arg0, arg1, arg2, arg3))
    sizes: gl.constexpr = (GROUPS, D, BLOCK_N, BLOCK_D, STAGES, CONSUMERS, UNIT)
    how: gl.constexpr = (MASK, HAS_MASK_ROWS, MASK_UNIT)
    formula: gl.constexpr = (KINDS, PROGRAM, OUTPUTS)
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (consume, (rings, barriers, masks, lengths, y, 0, sizes, how, formula)),
                (consume, (rings, barriers, masks, lengths, y, 1, sizes, how, formula)),
                (produce, (rings, barriers, q_desc, k_desc, v_desc, lengths, sizes, (False,))),
            ],
            [WARPS, 1],
            [240, 24],
        )
    else:
        gl.warp_specialize(
            [
                (consume, (rings, barriers, masks, lengths, y, 0, sizes, how, formula)),
                (consume, (rings, barriers, masks, lengths, y, 1, sizes, how, formula)),
                (consume, (rings, barriers, masks, lengths, y, 2, sizes, how, formula)),
                (produce, (rings, barriers, q_desc, k_desc, v_desc, lengths, sizes, (False,))),
            ],
            [WARPS, WARPS, 1],
            [160, 160, 32],
        )


@gluon.jit
def consume(
    rings,
    barriers,
    masks,
    lengths,
    y,
    CONSUMER: gl.constexpr,
    sizes: gl.constexpr,
    how: gl.constexpr,
    formula: gl.constexpr,
):
    """Attend for 64 queries of every tile of this program."""
    q_ring, k_ring, v_ring = rings
    full, empty, q_full, q_empty, _ = barriers
    B, H, S, T = lengths
    BLOCK_N: gl.constexpr = sizes[2]
    BLOCK_D: gl.constexpr = sizes[3]
    CONSUMERS: gl.constexpr = sizes[5]
    SCORES: gl.constexpr = sums_layout(BLOCK_N, q_ring.dtype.primitive_bitwidth)
    SUMS: gl.constexpr = sums_layout(BLOCK_D, v_ring.dtype.primitive_bitwidth)
    ROW: gl.constexpr = gl.SliceLayout(1, SCORES)
    tiles = gl.cdiv(S, ROWS * CONSUMERS)
    all_tiles = B * H * tiles
    blocks = gl.cdiv(T, BLOCK_N)
    programs = gl.num_programs(0)
    begin = gl.program_id(0)
    mbarrier.wait(q_full.index(0), 0)
    mbarrier.wait(full.index(0), 0)
    scores = multiply_scores(
        q_ring.index(CONSUMER).reshape([ROWS, BLOCK_D]), k_ring.index(0).reshape([BLOCK_N, BLOCK_D]), SCORES
    )
    place = place_of(begin, tiles, B, H, ROWS * CONSUMERS, False)
    given = load_mask(masks, place, blocks - 1, lengths, CONSUMER, sizes, how)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    stage = 0
    parity = 0
    count = 0
    for tile in range(begin, all_tiles, programs):
        first, sample, head = place_of(tile, tiles, B, H, ROWS * CONSUMERS, False)
        following = gl.minimum(tile + programs, all_tiles - 1)
        next_place = place_of(following, tiles, B, H, ROWS * CONSUMERS, False)
        is_end = tile + programs >= all_tiles
        there = ((first, sample, head), next_place, is_end, count, blocks)
        start = gl.full([ROWS], -INF, gl.float32, ROW)
        none = gl.full([ROWS], 0.0, gl.float32, ROW)
        zeros = gl.full([ROWS, BLOCK_D], 0.0, gl.float32, SUMS)
        state = attend(
            (scores, given, start, none, zeros, 0, stage, parity),
            0, there, rings, barriers, masks, lengths, CONSUMER, sizes, how, True,
        )  # fmt: skip
        for i in range(1, blocks):
            state = attend(
                state, i, there, rings, barriers, masks, lengths, CONSUMER, sizes, how, False,
            )  # fmt: skip
        scores, given, peak, total, sums, weights, stage, parity = state
        last = stage_before(stage, sizes[4])
        sums = multiply_values(weights, v_ring.index(last), sums, BLOCK_N, BLOCK_D, False)
        sums = warpgroup_mma_wait(0, deps=(sums,))
        mbarrier.arrive(empty.index(last), count=1)
        mbarrier.arrive(q_empty.index(count & 1), count=1)
        count += 1
        rows = first + CONSUMER * ROWS + gl.arange(0, ROWS, ROW)
        store_attended(sums, total, (0, 0, 0), rows, sample, head, S, y, sizes, v_ring.dtype, SUMS, formula)


@gluon.jit
def attend(
    state,
    i,
    there,
    rings,
    barriers,
    masks,
    lengths,
    CONSUMER: gl.constexpr,
    sizes: gl.constexpr,
    how: gl.constexpr,
    IS_FIRST: gl.constexpr,
):
    """The weights of block i from the last, the scores of what follows, and sums up to the block before.

    Args:
        state: among it the sums, scaled for the weights of the block before, which are not in them.
        there: places of this tile and the next one, whether there is no next one, this one's number among the
            program's, and how many blocks each has.
        IS_FIRST: there is no block before, and there may be keys beyond the last.
    """
    scores, given, largest, total, sums, weights, stage, parity = state
    place, next_place, is_end, count, blocks = there
    q_ring, k_ring, v_ring = rings
    full, empty, q_full, _, _ = barriers
    BLOCK_N: gl.constexpr = sizes[2]
    BLOCK_D: gl.constexpr = sizes[3]
    STAGES: gl.constexpr = sizes[4]
    CONSUMERS: gl.constexpr = sizes[5]
    SCORES: gl.constexpr = sums_layout(BLOCK_N, q_ring.dtype.primitive_bitwidth)
    SUMS: gl.constexpr = sums_layout(BLOCK_D, v_ring.dtype.primitive_bitwidth)
    block = blocks - 1 - i
    is_last = block == 0
    is_over = is_last & is_end
    following, next_parity = next_stage(stage, parity, STAGES)

    tile = gl.where(is_last, count + 1, count)
    tile = gl.where(is_over, count, tile)
    source = gl.where(is_over, stage, following)
    mbarrier.wait(q_full.index(tile & 1), (tile >> 1) & 1)
    mbarrier.wait(full.index(source), gl.where(is_over, parity, next_parity))
    queries = q_ring.index((tile & 1) * CONSUMERS + CONSUMER).reshape([ROWS, BLOCK_D])
    next_scores = multiply_scores(queries, k_ring.index(source).reshape([BLOCK_N, BLOCK_D]), SCORES)
    ahead = (
        gl.where(is_last, next_place[0], place[0]),
        gl.where(is_last, next_place[1], place[1]),
        gl.where(is_last, next_place[2], place[2]),
    )
    next_block = gl.where(is_last, blocks - 1, block - 1)
    next_given = load_mask(masks, ahead, next_block, lengths, CONSUMER, sizes, how)

    if not IS_FIRST:
        before = stage_before(stage, STAGES)
        sums = multiply_values(weights, v_ring.index(before), sums, BLOCK_N, BLOCK_D, False)
    p, peak, shrink = weigh(scores, given, largest, block * BLOCK_N, lengths[3], masks, SCORES, how, IS_FIRST)
    total = total * shrink + gl.sum(p, axis=1)
    if IS_FIRST:
        next_scores = warpgroup_mma_wait(0, deps=(next_scores,))
    else:
        sums, next_scores = warpgroup_mma_wait(0, deps=(sums, next_scores))
        mbarrier.arrive(empty.index(stage_before(stage, STAGES)), count=1)
        sums = sums * over_columns(shrink, SUMS)
    next_weights = weights_of(p, v_ring.dtype, SUMS)
    return next_scores, next_given, peak, total, sums, next_weights, following, next_parity


@gluon.jit
def weigh(
    scores,
    given,
    largest,
    first,
    T,
    masks,
    SCORES: gl.constexpr,
    how: gl.constexpr,
    IS_FIRST: gl.constexpr,
):
    """The weights of a block, the largest score so far, and what becomes of earlier weights.

    Args:
        given: of the mask.
        first: number of the block's first key.
    """
    MASK: gl.constexpr = how[0]
    scale = masks[4]
    if MASK == "none":
        x = scores
    elif MASK == "added":
        x = scores * scale + given.to(gl.float32)
    elif MASK == "kept":
        x = gl.where(given != 0, scores * scale, masks[5])
    else:
        x = gl.where(given != 0, masks[5], scores * scale)
    if IS_FIRST:
        keys = first + gl.arange(0, scores.shape[1], gl.SliceLayout(0, SCORES))
        x = gl.where((keys < T)[None, :], x, -INF)
    peak = gl.max(x, axis=1)
    if not IS_FIRST:
        peak = gl.maximum(largest, peak)
    if MASK == "none":
        p = exp2(x * scale - (peak * scale)[:, None])
        shrink = exp2((largest - peak) * scale)
    else:
        # A query that has seen nothing yet has no largest score to take off.
        base = gl.where(peak == -INF, 0.0, peak)
        if given.dtype == gl.float16:
            p = exp2(x * LOG2E - (base * LOG2E)[:, None])
        else:  # numbers that are too large to be multiplied
            p = exp2((x - base[:, None]) * LOG2E)
        shrink = exp2((largest - base) * LOG2E)
    return p, peak, shrink


@gluon.jit
def load_mask(masks, place, block, lengths, CONSUMER: gl.constexpr, sizes: gl.constexpr, how: gl.constexpr):
    """The mask of a block of keys for a consumer's queries, rows beyond the last like the last one.

    Rows of the mask are filled up to a multiple of MASK_UNIT elements, which are read together.
    """
    MASK: gl.constexpr = how[0]
    HAS_ROWS: gl.constexpr = how[1]
    MASK_UNIT: gl.constexpr = how[2]
    mask_ptr, mask_b, mask_h, mask_s, _, _ = masks
    first, sample, head = place
    if MASK == "none":
        given = block * 0
    else:
        SCORES: gl.constexpr = sums_layout(sizes[2], 16)
        columns = gl.arange(0, sizes[2], gl.SliceLayout(0, SCORES))
        is_there = (block * sizes[2] + columns) // MASK_UNIT * MASK_UNIT < lengths[3]
        start = (sample.to(gl.int64) * mask_b + head.to(gl.int64) * mask_h) * MASK_UNIT
        block_ptr = mask_ptr + start + block * sizes[2]
        if HAS_ROWS:
            rows = first + CONSUMER * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
            rows = gl.minimum(rows, lengths[2] - 1) * (mask_s * MASK_UNIT)
            pointers = (block_ptr + rows)[:, None] + columns[None, :]
            given = gl.load(pointers, mask=is_there[None, :], other=0)
        else:
            given = gl.load(block_ptr + columns, mask=is_there, other=0)[None, :]
    return given


@gluon.jit
def stage_before(stage, STAGES: gl.constexpr):
    """The stage of the block before."""
    return gl.where(stage == 0, STAGES - 1, stage - 1)
