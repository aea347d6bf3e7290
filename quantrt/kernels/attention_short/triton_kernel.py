# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(scale * q @ k^T + mask) @ v) over few keys, in Gluon.

q [B, H, S, D], k and v [B, G, T, D], float16 or bfloat16; the mask, float16, is a row for all queries of a
sample or a head.

Over few keys a tile is mostly its beginning and its end, whose instructions run once, and do not stay near
the processors where each group of warps has its own, as in `attention_hopper`. Here the eight warps that
compute run the same ones, and so do two programs on a multiprocessor: one weighs, the other one multiplies.

Programs walk tiles of 128 queries, program_id, program_id + programs, ... A producer, a warp, loads their
queries and their keys in blocks, the last first, of which TAIL keys are taken: those behind whole blocks.

Blocks are numbered through all tiles of a program. Block s lies in stage s % STAGES, in round s // STAGES of
the ring. What keeps them apart:

full[stage]   completes once for every round, when the block's keys, values and mask are there; the producer
              arrives once with the bytes it expects. The consumer waits for the parity of the block's round.
empty[stage]  completes once for every round, when the consumer has arrived: after a wait that leaves no
              product unfinished that reads the stage. The producer waits before round r for completion r - 1;
              before round 0 for the parity of the phase before the first, which counts as complete.
q_full, q_empty  the same for the queries of a tile. The consumer lets go of them after its last scores.
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
    LEAST_MASK,
    UNSEEN_FLOATS,
    over_columns,
    uniform,
)
from quantrt.kernels.jit.expression import evaluate, stored
from quantrt.kernels.jit.functions import INF, LOG2E, await_kernels_before, exp2
from quantrt.kernels.jit.ring import next_stage

__all__ = ["attention_short"]

WARPS = gl.constexpr(8)
"""Of the consumer."""
ROWS = gl.constexpr(128)
"""Queries of a tile."""
COUNTS = gl.constexpr(8)
"""Columns of sums of weights: a thread has two of every 8."""


@gluon.jit
def attention_short(
    q_desc,
    k_desc,
    v_desc,
    mask_desc,
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
    KINDS: gl.constexpr,
    PROGRAM: gl.constexpr,
    OUTPUTS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    TAIL: gl.constexpr,
    STAGES: gl.constexpr,
    FIRST_WARPS: gl.constexpr,
    NEIGHBOURS: gl.constexpr,
):
    gl.static_assert((MASK == "none") | (TAIL == BLOCK_N))
    gl.static_assert(FIRST_WARPS == WARPS)
    q_tile = gl.allocate_shared_memory(q_desc.dtype, [1, 1, 1, ROWS, BLOCK_D], q_desc.layout)
    k_ring = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], k_desc.layout)
    v_ring = gl.allocate_shared_memory(v_desc.dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], v_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    mbarrier.init(q_full.index(0), count=1)
    mbarrier.init(q_empty.index(0), count=1)
    fence_async_shared()
    mask_ring = 0
    if MASK != "none":
        mask_ring = gl.allocate_shared_memory(
            mask_desc.dtype, [STAGES] + mask_desc.block_type.shape, mask_desc.layout
        )
    rings = (q_tile, k_ring, v_ring, mask_ring)
    barriers = (full, empty, q_full, q_empty)
    lengths = (B, H, S, T)
    y = (pointers, (y_b, y_h, y_s), slots)
    sizes: gl.constexpr = (GROUPS, D, BLOCK_N, BLOCK_D, STAGES, UNIT, TAIL, MASK != "none")
    formula: gl.constexpr = (KINDS, PROGRAM, OUTPUTS)
    descs = (q_desc, k_desc, v_desc, (mask_desc, mask_b, mask_h))
    gl.warp_specialize(
        [
            (consume, (rings, barriers, lengths, y, scale, sizes, formula)),
            (produce, (rings, barriers, descs, lengths, sizes)),
        ],
        [1],
        [24],
    )


@gluon.jit
def produce(rings, barriers, descs, lengths, sizes: gl.constexpr):
    """Load queries, keys, values and what is masked of all tiles of this program."""
    q_tile, k_ring, v_ring, mask_ring = rings
    full, empty, q_full, q_empty = barriers
    q_desc, k_desc, v_desc, masks = descs
    mask_desc, mask_b, mask_h = masks
    B, H, S, T = lengths
    GROUPS: gl.constexpr = sizes[0]
    BLOCK_N: gl.constexpr = sizes[2]
    MASK_BYTES: gl.constexpr = mask_desc.block_type.nbytes if sizes[7] else 0
    BLOCK_BYTES: gl.constexpr = k_desc.block_type.nbytes + v_desc.block_type.nbytes + MASK_BYTES
    tiles = gl.cdiv(S, ROWS)
    whole = whole_blocks(T, BLOCK_N, sizes[6])
    await_kernels_before()
    stage = 0
    parity = 1
    q_parity = 1
    for tile in range(gl.program_id(0), B * H * tiles, gl.num_programs(0)):
        sample = tile // tiles // H
        head = tile // tiles % H
        mbarrier.wait(q_empty.index(0), q_parity)
        q_parity = q_parity ^ 1
        mbarrier.expect(q_full.index(0), q_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            q_desc, [sample, head, tile % tiles * ROWS, 0], q_full.index(0), q_tile.index(0)
        )
        for i in range(whole + 1):
            key = (whole - i) * BLOCK_N
            mbarrier.wait(empty.index(stage), parity)
            there = full.index(stage)
            mbarrier.expect(there, BLOCK_BYTES)
            if sizes[7]:
                tma.async_copy_global_to_shared(
                    mask_desc, [sample * mask_b, head * mask_h, 0, key], there, mask_ring.index(stage)
                )
            tma.async_copy_global_to_shared(
                k_desc, [sample, head // GROUPS, key, 0], there, k_ring.index(stage)
            )
            tma.async_copy_global_to_shared(
                v_desc, [sample, head // GROUPS, key, 0], there, v_ring.index(stage)
            )
            stage, parity = next_stage(stage, parity, sizes[4])


@gluon.jit
def consume(rings, barriers, lengths, y, scale, sizes: gl.constexpr, formula: gl.constexpr):
    """Attend for all tiles of this program. Nothing is unfinished before or after a tile."""
    q_tile, k_ring, v_ring, mask_ring = rings
    full, empty, q_full, q_empty = barriers
    B, H, S, T = lengths
    BLOCK_N: gl.constexpr = sizes[2]
    BLOCK_D: gl.constexpr = sizes[3]
    STAGES: gl.constexpr = sizes[4]
    TAIL: gl.constexpr = sizes[6]
    SUMS: gl.constexpr = sums_layout(BLOCK_D)
    ROW: gl.constexpr = gl.SliceLayout(1, SUMS)
    tiles = gl.cdiv(S, ROWS)
    q = q_tile.index(0).reshape([ROWS, BLOCK_D])
    await_kernels_before()
    stage = 0
    parity = 0
    q_parity = 0
    for tile in range(gl.program_id(0), B * H * tiles, gl.num_programs(0)):
        place = (tile // tiles // H, tile // tiles % H, tile % tiles * ROWS)
        whole = whole_blocks(T, BLOCK_N, TAIL)
        mbarrier.wait(q_full.index(0), q_parity)
        q_parity = q_parity ^ 1
        mbarrier.wait(full.index(stage), parity)
        if sizes[7]:
            # What is padded at the end of a sample is hidden from all queries.
            while (whole > 0) & (not differs(mask_ring, stage, -INF, T - whole * BLOCK_N)):
                fence_async_shared()
                mbarrier.arrive(empty.index(stage), count=1)
                stage, parity = next_stage(stage, parity, STAGES)
                mbarrier.wait(full.index(stage), parity)
                whole -= 1
        scores = begin_scores(q, k_ring, stage, TAIL)
        scores = end_scores(scores, mask_ring, stage, scale, sizes)
        mbarrier.arrive(q_empty.index(0), count=1, pred=whole == 0)
        scores = hide_behind(scores, T - whole * BLOCK_N)
        peak = gl.full([ROWS], -INF, gl.float32, ROW)
        total = gl.full([ROWS, COUNTS], 0.0, gl.float32, sums_layout(COUNTS))
        sums = gl.full([ROWS, BLOCK_D], 0.0, gl.float32, SUMS)
        weights, peak, shrink, total = weigh(scores, scale, peak, total, SUMS, v_ring.dtype)
        state = (weights, peak, total, sums, stage, parity)
        if TAIL != BLOCK_N:
            # A step of another width is not one of a loop.
            state = attend(state, whole, T - (whole - 1) * BLOCK_N, q, rings, barriers, scale, sizes)
            whole -= 1
        for i in range(0, whole):
            state = attend(state, whole - i, BLOCK_N, q, rings, barriers, scale, sizes)
        weights, peak, total, sums, last, last_parity = state
        sums = begin_values(weights, v_ring, last, sums)
        row_total = gl.convert_layout(gl.sum(total, axis=1), ROW, assert_trivial=True)
        if sizes[7]:
            row_total = gl.where(peak < HIDDEN, 0.0, row_total)
        factor = gl.where(row_total == 0.0, 0.0, 1.0 / row_total)
        sums = warpgroup_mma_wait(0, deps=(sums,))
        if sizes[7]:
            # What was read by threads is given back to the copy engine.
            fence_async_shared()
        mbarrier.arrive(empty.index(last), count=1)
        stage, parity = next_stage(last, last_parity, STAGES)
        store(sums * over_columns(factor, SUMS), place, S, y, sizes, formula)


@gluon.jit
def attend(state, left, count, q, rings, barriers, scale, sizes: gl.constexpr):
    """The product of a block's weights and values, and weights of the block before it, of `count` keys.

    That one is the first of `left` blocks; with the last one the queries are let go of.
    """
    weights, peak, total, sums, stage, parity = state
    _, k_ring, v_ring, mask_ring = rings
    full, empty, _, q_empty = barriers
    SUMS: gl.constexpr = sums_layout(sizes[3])
    following, next_parity = next_stage(stage, parity, sizes[4])
    mbarrier.wait(full.index(following), next_parity)
    sums = begin_values(weights, v_ring, stage, sums)
    scores = begin_scores(q, k_ring, following, sizes[2])
    scores = end_scores(scores, mask_ring, following, scale, sizes)
    sums = warpgroup_mma_wait(0, deps=(sums,))
    if sizes[7]:
        fence_async_shared()
    mbarrier.arrive(empty.index(stage), count=1)
    mbarrier.arrive(q_empty.index(0), count=1, pred=left == 1)
    if sizes[6] != sizes[2]:
        scores = hide_behind(scores, count)
    weights, peak, shrink, total = weigh(scores, scale, peak, total, SUMS, v_ring.dtype)
    return weights, peak, total, sums * over_columns(shrink, SUMS), following, next_parity


@gluon.jit
def begin_scores(q, k_ring, stage, KEYS: gl.constexpr):
    """q @ k^T of the first keys of a stage, begun."""
    part = k_ring.index(stage)
    BLOCK_N: gl.constexpr = part.shape[2]
    BLOCK_D: gl.constexpr = part.shape[3]
    k = part.reshape([BLOCK_N, BLOCK_D])
    if KEYS != BLOCK_N:
        k = k.slice(0, KEYS)
    zeros = gl.zeros((ROWS, KEYS), gl.float32, sums_layout(KEYS))
    return warpgroup_mma(q, k.permute((1, 0)), zeros, use_acc=False, is_async=True)


@gluon.jit
def end_scores(scores, mask_ring, stage, scale, sizes: gl.constexpr):
    """Scores of a product that was begun, with the mask in them; nothing is unfinished."""
    if sizes[7]:
        # While the tensor cores multiply.
        is_masked = differs(mask_ring, stage, 0.0, mask_ring.index(stage).shape[3])
        scores = warpgroup_mma_wait(0, deps=(scores,))
        if is_masked:
            part = mask_ring.index(stage)
            KEYS: gl.constexpr = part.shape[3]
            given = part.reshape([KEYS]).load(gl.SliceLayout(0, sums_layout(KEYS)))
            added = given.to(gl.float32) * (LOG2E / scale)
            scores = scores + gl.where(added < LEAST_MASK, LEAST_MASK, added)[None, :]
    else:
        scores = warpgroup_mma_wait(0, deps=(scores,))
    return scores


@gluon.jit
def hide_behind(scores, count):
    """Scores of a block with so many keys."""
    KEYS: gl.constexpr = scores.shape[1]
    if count < KEYS:
        keys = gl.arange(0, KEYS, gl.SliceLayout(0, sums_layout(KEYS)))
        scores = gl.where((keys < count)[None, :], scores, UNSEEN_FLOATS)
    return scores


@gluon.jit
def begin_values(weights, v_ring, stage, sums):
    """Sums + weights @ v with the first values of a stage, begun."""
    part = v_ring.index(stage)
    BLOCK_N: gl.constexpr = part.shape[2]
    BLOCK_D: gl.constexpr = part.shape[3]
    KEYS: gl.constexpr = weights.shape[1]
    v = part.reshape([BLOCK_N, BLOCK_D])
    if KEYS != BLOCK_N:
        v = v.slice(0, KEYS)
    return warpgroup_mma(weights, v, sums, is_async=True)


@gluon.jit
def weigh(scores, scale, peak, total, SUMS: gl.constexpr, ELEMENT: gl.constexpr):
    """Weights as a left factor, the largest score so far, what becomes of earlier weights, their sums."""
    KEYS: gl.constexpr = scores.shape[1]
    SCORES: gl.constexpr = sums_layout(KEYS)
    TOTALS: gl.constexpr = sums_layout(COUNTS)
    LEFT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=SUMS, k_width=2)
    top = gl.convert_layout(gl.max(scores, axis=1), gl.SliceLayout(1, SUMS), assert_trivial=True) * scale
    largest = gl.maximum(peak, top)
    shrink = exp2(peak - largest)
    p = exp2(gl.fma(scores, scale, -over_columns(largest, SCORES)))
    parts = gl.sum(p.reshape([ROWS, KEYS // COUNTS, COUNTS]), axis=1)
    total = gl.fma(total, over_columns(shrink, TOTALS), gl.convert_layout(parts, TOTALS, assert_trivial=True))
    return gl.convert_layout(p.to(ELEMENT), LEFT, assert_trivial=True), largest, shrink, total


@gluon.jit
def differs(ring, stage, number, count):
    """Whether the first elements of the part of a mask in a stage have other numbers than this one."""
    part = ring.index(stage)
    COLUMNS: gl.constexpr = part.shape[3]
    LAYOUT: gl.constexpr = gl.BlockedLayout([COLUMNS // 32], [32], [WARPS], [0])
    given = part.reshape([COLUMNS]).load(LAYOUT).to(gl.float32)
    is_same = (given == number) | (gl.arange(0, COLUMNS, LAYOUT) >= count)
    return uniform(gl.max(gl.where(is_same, 0, 1), axis=0)) != 0


@gluon.jit
def store(x, place, S, y, sizes: gl.constexpr, formula: gl.constexpr):
    """The epilogue of what was attended to, stored 16 bytes at a time."""
    sample, head, first = place
    pointers, strides, slots = y
    y_b, y_h, y_s = strides
    D: gl.constexpr = sizes[1]
    BLOCK_D: gl.constexpr = sizes[3]
    UNIT: gl.constexpr = sizes[5]
    KINDS: gl.constexpr = formula[0]
    PROGRAM: gl.constexpr = formula[1]
    OUTPUTS: gl.constexpr = formula[2]
    registers = (x,)
    for i in gl.static_range(len(KINDS)):
        registers = registers + (slots[i],)
    results = evaluate(PROGRAM, registers)
    start = (sample.to(gl.int64) * y_b + head.to(gl.int64) * y_h) * UNIT
    for i in gl.static_range(len(OUTPUTS)):
        result = stored(PROGRAM, OUTPUTS[i], results, pointers[i].dtype.element_ty)
        LAYOUT: gl.constexpr = store_layout(BLOCK_D, result.dtype)
        result = gl.convert_layout(result, LAYOUT)
        columns = gl.arange(0, BLOCK_D, gl.SliceLayout(0, LAYOUT))
        queries = first + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
        offsets = queries.to(gl.int64)[:, None] * (y_s * UNIT) + columns[None, :]
        mask = (queries < S)[:, None]
        if D != BLOCK_D:
            mask = mask & (columns < D)[None, :]
        gl.store(pointers[i] + start + offsets, result, mask=mask)


@gluon.jit
def whole_blocks(T, BLOCK_N: gl.constexpr, TAIL: gl.constexpr):
    """Blocks before the last step; one at least where that is narrower, which then may have no key."""
    whole = gl.cdiv(T - TAIL, BLOCK_N)
    if TAIL != BLOCK_N:
        whole = gl.maximum(whole, 1)
    return whole


@gluon.constexpr_function
def sums_layout(columns):
    """How 128 rows of sums of 16-bit floats' products lie in the registers of eight warps."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[8, 1], instr_shape=[16, columns, 16])


@gluon.constexpr_function
def store_layout(columns, element):
    """[128, columns]: 16 bytes of a row for each thread."""
    run = min(columns, 128 // element.primitive_bitwidth)
    across = min(32, columns // run)
    return gl.BlockedLayout([1, run], [32 // across, across], [8, 1], [1, 0])
