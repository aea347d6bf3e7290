# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(x[M, K] @ w[N, K]^T) with a producer and two consumers in turns, in Gluon.

One program per multiprocessor walks tiles program_id, program_id + programs, ... Its producer, a warp, loads
all of them, in blocks of K, into a ring of STAGES stages. Its consumers take whole tiles in
turns: the first one the program's tiles 0, 2, 4, ..., the second one 1, 3, 5, ... While one stores its tile,
the other multiplies.

Blocks are numbered through all tiles of a program: s = STEPS * (tile of this program) + (block of K). Block s
lies in stage s % STAGES, in round s // STAGES of the ring. What keeps them apart, each barrier with a count
of 1:

full[stage]   completes once for every round, when both copies of the round's block are there: the producer
              arrives once, with the bytes it expects, and the copies count them down. The consumer of block s
              waits for the parity of its round, so for completion number s // STAGES (from 0).
empty[stage]  completes once for every round, when the block's consumer has arrived: after a wait that leaves
              no product unfinished that reads the stage, and after all of its warps have passed that wait.
              The producer waits before round r for completion r - 1, of parity (r - 1) & 1; before round 0
              for the parity of the phase before the first, which counts as complete.
turns[c]      completes when the other consumer has issued its last product of a tile. Consumer 0 waits before
              its tile j for completion j - 1, consumer 1 before its tile j for completion j.

No barrier gets two phases ahead of who waits for it, and nobody waits for a round while the one before it is
still to come, for a parity cannot tell rounds apart that differ by two. The producer cannot begin round r + 1
of a stage before the consumer of round r has arrived, which it does after its wait for `full` of round r. A
consumer begins a tile when the other has seen all blocks of the tile before, so all blocks before its own:
without turns it would take round r - 2 for round r. A consumer cannot hand its turn over twice without having
got it back in between. No wait is in vain: a consumer that waits for its turn does so after a tile that was
taken before its own, and blocks are loaded in the order of the tiles. There are two stages at least, for a
block is let go when the next one is taken. A last turn is handed over to a consumer that has no tile left;
nothing waits.

Of a gate, w has two rows for every column of y, side by side. HAS_LIVE: of M rows only the first ones are
computed, as many as live_ptr says. What lies beyond M, N and K is read as zeros by the copy engine; rows
beyond M and columns beyond N are not stored. A tile is finished in parts, so that no more registers are
needed than there are; constants and tensors of the first parts are asked for before the tile is multiplied.
All but weights is read when kernels before this one are done. LOOPED is one loop over the columns of parts,
where what finishes a tile is so long that its machine code, of a whole tile and of two consumers, is fetched
more slowly than it runs. SHARED: both consumers take every tile, half of its rows each; `empty` counts both,
and there are no turns. That is for programs of one tile, which one consumer would finish alone, and for sums
of FP8 that are PROMOTED, of so many blocks at a time, see kernels/jit/block_sums: there turns[1] completes
once, when consumer 0 has multiplied the first blocks of its first tile. It waits for none of them that
consumer 1 keeps from coming, for they are fewer than the ring has stages. SLICED:
consumers are those of kernels/jit/slices, which take no turns.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
)

from quantrt.kernels.jit.block_sums import let_go, promoted_sums, sums_of
from quantrt.kernels.jit.fragments import (
    finish_part,
    load_blocks,
    load_constants,
    part_layout,
    part_of,
    parts_of,
)
from quantrt.kernels.jit.functions import await_kernels_before
from quantrt.kernels.jit.producer import produce
from quantrt.kernels.jit.ring import (
    WARPS,
    main_columns,
    place_of,
)
from quantrt.kernels.jit.slices import consume_slices

__all__ = ["CONSUMER_REGISTERS", "PRODUCER_REGISTERS", "gemm_hopper"]

CONSUMER_REGISTERS = gl.constexpr(240)
PRODUCER_REGISTERS = gl.constexpr(24)
"""Of a thread; two groups of 128 with 240 and one with 24 have no more than three with 168, as launched."""


@gluon.jit
def gemm_hopper(
    x_desc,
    w_desc,
    rest_desc,
    pointers,
    slots,
    M,
    live_ptr,
    HAS_LIVE: gl.constexpr,
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
    CONSTANTS_AHEAD: gl.constexpr,
    TENSORS_AHEAD: gl.constexpr,
    LOOPED: gl.constexpr,
    SLICED: gl.constexpr,
    SHARED: gl.constexpr,
    PROMOTED: gl.constexpr,
):
    gl.static_assert(STAGES >= 2)
    if HAS_LIVE:
        await_kernels_before()
        M = gl.minimum(M, gl.load(live_ptr))
    MAIN_N: gl.constexpr = main_columns(BLOCK_N)
    x_ring = gl.allocate_shared_memory(x_desc.dtype, [STAGES, BLOCK_M, BLOCK_K], x_desc.layout)
    w_ring = gl.allocate_shared_memory(w_desc.dtype, [STAGES, MAIN_N, BLOCK_K], w_desc.layout)
    rest_ring = 0
    if BLOCK_N > MAIN_N:
        rest_ring = gl.allocate_shared_memory(
            rest_desc.dtype, [STAGES, BLOCK_N - MAIN_N, BLOCK_K], rest_desc.layout
        )
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1 + SHARED)
    mbarrier.init(turns.index(0), count=1)
    mbarrier.init(turns.index(1), count=1)
    fence_async_shared()

    ring = (x_ring, w_ring, rest_ring, full, empty)
    sizes: gl.constexpr = (N, K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP_M, RUN, 1 + GATED)
    ahead: gl.constexpr = (CONSTANTS_AHEAD, TENSORS_AHEAD, LOOPED, SHARED, PROMOTED)
    formula: gl.constexpr = (KINDS, PROGRAM, OUTPUTS, PITCHES)
    if SLICED:
        gl.warp_specialize(
            [
                (consume_slices, (ring, pointers, slots, M, 0, sizes, formula)),
                (consume_slices, (ring, pointers, slots, M, 1, sizes, formula)),
                (produce, (ring, x_desc, w_desc, rest_desc, M, not HAS_LIVE, sizes)),
            ],
            [WARPS, 1],
            [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
        )
    else:
        gl.warp_specialize(
            [
                (consume, (ring, turns, pointers, slots, M, 0, sizes, ahead, formula)),
                (consume, (ring, turns, pointers, slots, M, 1, sizes, ahead, formula)),
                (produce, (ring, x_desc, w_desc, rest_desc, M, not HAS_LIVE, sizes)),
            ],
            [WARPS, 1],
            [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
        )


@gluon.jit
def consume(
    ring,
    turns,
    pointers,
    slots,
    M,
    CONSUMER: gl.constexpr,
    shapes: gl.constexpr,
    ahead: gl.constexpr,
    formula: gl.constexpr,
):
    """Multiply, finish and store every other tile of this program, or half of the rows of each."""
    N: gl.constexpr = shapes[0]
    K: gl.constexpr = shapes[1]
    SHARED: gl.constexpr = ahead[3]
    BLOCK_M: gl.constexpr = shapes[2] // (1 + SHARED)
    BLOCK_N: gl.constexpr = shapes[3]
    STAGES: gl.constexpr = shapes[5]
    RUN: gl.constexpr = shapes[7]
    sizes: gl.constexpr = shapes[:2] + (BLOCK_M,) + shapes[3:]
    TILES_N: gl.constexpr = (N * sizes[8] + BLOCK_N - 1) // BLOCK_N
    STEPS: gl.constexpr = (K + sizes[4] - 1) // sizes[4]
    ROWS: gl.constexpr = 16 * WARPS
    PARTS_M: gl.constexpr = BLOCK_M // ROWS
    PARTS_N: gl.constexpr = BLOCK_N // (4 * RUN * sizes[8])
    CONSTANTS_AHEAD: gl.constexpr = min(ahead[0], PARTS_N)
    TENSORS_AHEAD: gl.constexpr = min(ahead[1], PARTS_M * PARTS_N)
    LOOPED: gl.constexpr = ahead[2]
    PROMOTED: gl.constexpr = ahead[4]
    PART: gl.constexpr = part_layout(RUN, WARPS)
    MAIN_N: gl.constexpr = main_columns(BLOCK_N)
    REST_N: gl.constexpr = BLOCK_N - MAIN_N
    IN_STAGE: gl.constexpr = (CONSUMER * BLOCK_M, SHARED)
    tiles_m = gl.cdiv(M, shapes[2])
    # Consumers that share all tiles have no turns.
    TURN: gl.constexpr = 0 if SHARED else CONSUMER
    TURNS: gl.constexpr = 1 if SHARED else 2
    programs = gl.num_programs(0)
    await_kernels_before()
    block = TURN * STEPS
    turn = 1 - CONSUMER
    for tile in range(gl.program_id(0) + TURN * programs, tiles_m * TILES_N, TURNS * programs):
        tile_m, tile_n = place_of(tile, tiles_m, TILES_N, sizes[6])
        if SHARED:
            tile_m = tile_m * 2 + CONSUMER
        stage = block % STAGES
        parity = (block // STAGES) & 1
        block += TURNS * STEPS
        # What the first parts read is on its way before there is anything to multiply.
        constants = ()
        for j in gl.static_range(CONSTANTS_AHEAD):
            constants = constants + (load_constants(slots, tile_n, j, sizes, formula, PART),)
        tensors = ()
        for p in gl.static_range(TENSORS_AHEAD):
            place = part_of(tile_m, tile_n, p, M, sizes, PART)
            tensors = tensors + (load_blocks(slots, place, sizes, formula),)
        if not SHARED:
            mbarrier.wait(turns.index(CONSUMER), turn)
            turn ^= 1

        if PROMOTED > 0:
            is_first = tile == gl.program_id(0)
            sums, rest = promoted_sums(
                ring, turns, is_first, stage, parity, STEPS, PROMOTED, CONSUMER, IN_STAGE, sizes
            )
        else:
            sums, rest, stage, parity = sums_of(ring, stage, parity, STEPS, IN_STAGE, sizes)
            if not SHARED:
                mbarrier.arrive(turns.index(1 - CONSUMER), count=1)
            sums, rest = let_go(ring, sums, rest, stage, sizes)
        parts = parts_of(sums, BLOCK_M, MAIN_N, part_layout(RUN * sizes[8], WARPS))
        if REST_N > 0:
            parts = parts + parts_of(rest, BLOCK_M, REST_N, part_layout(RUN * sizes[8], WARPS))
        if LOOPED:
            for column in range(PARTS_N):
                # What the next columns read is on its way while these are finished.
                following = load_constants(slots, tile_n, (column + 1) % PARTS_N, sizes, formula, PART)
                later = ()
                for q in gl.static_range(PARTS_M):
                    next_part = (column + 1) * PARTS_M + q
                    place = part_of(tile_m, tile_n, next_part, M, sizes, PART)
                    there = place[:4] + (place[4] & (column + 1 < PARTS_N),)
                    later = later + (load_blocks(slots, there, sizes, formula),)
                for q in gl.static_range(PARTS_M):
                    place = part_of(tile_m, tile_n, column * PARTS_M + q, M, sizes, PART)
                    finish_part(parts[q], constants[0], tensors[q], pointers, place, sizes, formula, PART)
                constants = (following,)
                tensors = tensors[PARTS_M:] + later
                parts = parts[PARTS_M:] + parts[PARTS_M * (PARTS_N - 1) :]
        else:
            for p in gl.static_range(PARTS_M * PARTS_N):
                if p % PARTS_M == 0:
                    if p // PARTS_M + CONSTANTS_AHEAD < PARTS_N:
                        constants = constants + (
                            load_constants(
                                slots, tile_n, p // PARTS_M + CONSTANTS_AHEAD, sizes, formula, PART
                            ),
                        )
                if p + TENSORS_AHEAD < PARTS_M * PARTS_N:
                    place = part_of(tile_m, tile_n, p + TENSORS_AHEAD, M, sizes, PART)
                    tensors = tensors + (load_blocks(slots, place, sizes, formula),)
                place = part_of(tile_m, tile_n, p, M, sizes, PART)
                finish_part(
                    parts[p], constants[p // PARTS_M], tensors[p], pointers, place, sizes, formula, PART
                )
