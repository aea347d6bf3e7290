# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(scale * q @ k^T + mask) @ v) with a producer and two consumers, in Gluon.

q [B, H, S, D]: float16 or bfloat16. k [B, G, T, D]: floats too, or int8 codes with a scale for every BLOCK_N
keys; then each consumer makes codes of its queries, with a scale for every row. v: FP8 codes [B, G, D, T']
with a scale for every BLOCK_N keys, its rows and keys in the orders of `kernels.attention_codes.spec`; or
floats [B, G, T, D] as they are. The scale of the scores holds log2(e) too. The mask, float16, is a row for
all queries of a sample or a head; it comes with the keys of a block, and goes with scores of floats alone.
Zhang et al., "SageAttention2", arXiv 2411.10958, for the formats; Shah et al., "FlashAttention-3", arXiv
2407.08608, for the schedule.

One program per multiprocessor walks tiles program_id, program_id + programs, ... of 128 queries.
Its producer, a warp, loads the queries of every tile and its keys in blocks, the last block first. Each
consumer has 64 of the queries and all keys: `attention_consumer`. One turns scores into weights while
products of the other go on. The last blocks are those that are masked: scores of keys that are not seen are
such that their weights are 0.

The sums of a block's weights are a product too, with 8 columns of ones: additions for each of them would take
as many instructions as the exponentials do. FP8 sums keep 14 bits or so inside the tensor cores, and what is
behind those is cut off: over 16,384 keys a third of a sum of one sign was lost on an H200. So sums of a block
are taken out and added in float32.

Blocks are numbered through all tiles of a program. Block s lies in stage s % STAGES, in round s // STAGES of
the ring; queries of the program's tile t in slot t % SLOTS, where there is one of queries that become codes,
else two. What keeps them apart:

full[stage]   completes once for every round, when the block's keys and values are there; the producer arrives
              once with the bytes it expects. Consumers wait for the parity of the block's round.
empty[stage]  completes once for every round, when each consumer has arrived: after a wait that leaves no
              product unfinished that reads the stage. The producer waits before round r for completion r - 1;
              before round 0 for the parity of the phase before the first, which counts as complete.
q_full, q_empty  the same for slots of queries. A consumer lets go of them when it has made its codes, or in
              the step that multiplies the first queries of the next tile.
turns[consumer]  where consumers begin their products in turn: completes when the other one has begun those of
              a step. The first step of the first consumer does not wait. Both have as many steps.

A consumer waits for block s + 2 before it lets go of block s, of whatever tile: there are 3 stages at least,
and it has let go of the queries of two tiles before.

Products run beside instructions only where the assembler leaves these where they were written: it takes waits
for products before what does not depend on them. The wait for block s + 2, a loop, keeps the wait for the
values' product behind the largest score.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from quantrt.kernels.attention_consumer.triton_kernel import (
    CONSUMERS,
    COUNTS,
    ROWS,
    WARPS,
    blocks_of,
    consume,
    place_of,
)
from quantrt.kernels.attention_fragments.triton_kernel import next_stage, ones_of
from quantrt.kernels.functions.triton_kernel import await_kernels_before

__all__ = ["attention_hopper"]


@gluon.jit
def attention_hopper(
    q_desc,
    k_desc,
    v_desc,
    mask_desc,
    k_scale_ptr,
    v_scale_ptr,
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
    HAS_CODES: gl.constexpr = k_desc.dtype.primitive_bitwidth == 8
    SLOTS: gl.constexpr = 1 if HAS_CODES else 2
    q_ring = gl.allocate_shared_memory(q_desc.dtype, [SLOTS * CONSUMERS, 1, 1, ROWS, BLOCK_D], q_desc.layout)
    k_ring = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], k_desc.layout)
    v_ring = gl.allocate_shared_memory(v_desc.dtype, [STAGES] + v_desc.block_type.shape, v_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
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
    turns = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(CONSUMERS):
        mbarrier.init(turns.index(i), count=1)
    for i in gl.static_range(SLOTS):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=CONSUMERS)
    fence_async_shared()

    mask_ring = 0
    if MASK != "none":
        mask_ring = gl.allocate_shared_memory(
            mask_desc.dtype, [STAGES] + mask_desc.block_type.shape, mask_desc.layout
        )
    q_codes = q_ring
    if HAS_CODES:
        q_codes = gl.allocate_shared_memory(k_desc.dtype, [CONSUMERS, 1, 1, ROWS, BLOCK_D], k_desc.layout)
    rings = (q_ring, q_codes, k_ring, v_ring, mask_ring)
    barriers = (full, empty, q_full, q_empty, turns)
    scales = (k_scale_ptr, v_scale_ptr, scale)
    lengths = (B, H, S, T)
    y = ((y0_ptr, y1_ptr), (y_b, y_h, y_s), (arg0, arg1, arg2, arg3))
    sizes: gl.constexpr = (GROUPS, D, BLOCK_N, BLOCK_D, STAGES, UNIT, SLOTS)
    how: gl.constexpr = (IS_CAUSAL, LINES, MASK != "none", TURNS, HAS_CODES or V_BITS == 8)
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
    q_ring, _, k_ring, v_ring, mask_ring = rings
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
        slot, q_parity = next_stage(slot, q_parity, sizes[6])
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
