# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(x[M, K] @ w[N, K]^T) with a producer and two consumers in turns, in Gluon.

One program per multiprocessor walks tiles program_id, program_id + programs, ... Its producer, a warp, loads
all of them, in blocks of K, into a ring of STAGES stages. Its consumers take whole tiles in
turns: the first one the program's tiles 0, 2, 4, ..., the second one 1, 3, 5, ... While one stores its tile,
the other multiplies. What the epilogue reads of other tensors, a second warp loads, in parts of a tile, into
SLOTS slots of each consumer.

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

there[slot]   completes once for every part that was loaded into the slot, taken[slot] when all warps of its
              consumer have read it. Parts are numbered through the tiles of one consumer: part p of its tile
              j is number j * PARTS + p, lies in its slot p % SLOTS, and is in round number // SLOTS of it.
              Who reads waits for completion `round` of `there`, who loads for completion `round` - 1 of
              `taken`, as above.

No barrier gets two phases ahead of who waits for it, and nobody waits for a round while the one before it is
still to come, for a parity cannot tell rounds apart that differ by two. The producer cannot begin round r + 1
of a stage before the consumer of round r has arrived, which it does after its wait for `full` of round r. A
consumer begins a tile when the other has seen all blocks of the tile before, so all blocks before its own:
without turns it would take round r - 2 for round r. A consumer cannot hand its turn over twice without having
got it back in between. No wait is in vain: a consumer that waits for its turn does so after a tile that was
taken before its own, and blocks are loaded in the order of the tiles. There are two stages at least, for a
block is let go when the next one is taken. A last turn is handed over to a consumer that has no tile left;
nothing waits.

Of a gate, w has two rows for every column of y, side by side. What lies beyond M, N and K is read as zeros by
the copy engine; rows beyond M and columns beyond N are not stored. A tile is finished in parts, so that no
more registers are needed than there are; constants of the first parts are asked for before the tile is
multiplied.
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
    load_constants,
    part_layout,
    parts_of,
    store_part,
)

__all__ = ["gemm_hopper"]

WARPS = gl.constexpr(4)
"""Of a consumer."""
ROWS = gl.constexpr(64)
"""Of a part of a tile: what a consumer multiplies at once."""
CONSUMER_REGISTERS = gl.constexpr(240)
PRODUCER_REGISTERS = gl.constexpr(24)
"""Of a thread; two groups of 128 with 240 and one with 24 have no more than three with 168, as launched."""
MOST_AHEAD = gl.constexpr(2)
"""Columns of parts whose constants are asked for before their turn."""


@gluon.jit
def gemm_hopper(
    x_desc,
    w_desc,
    rest_desc,
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
    N: gl.constexpr,
    K: gl.constexpr,
    GATED: gl.constexpr,
    KINDS: gl.constexpr,
    PROGRAM: gl.constexpr,
    OUTPUTS: gl.constexpr,
    RUN: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP_M: gl.constexpr,
    CONSTANTS_AHEAD: gl.constexpr,
    SLOTS: gl.constexpr,
):
    gl.static_assert(STAGES >= 2)
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
        mbarrier.init(empty.index(i), count=1)
    mbarrier.init(turns.index(0), count=1)
    mbarrier.init(turns.index(1), count=1)
    slots = (arg0, arg1, arg2, arg3, arg4, arg5, arg6, arg7, arg8, arg9, arg10, arg11)
    parts = parts_rings(slots, KINDS, SLOTS)
    fence_async_shared()

    ring = (x_ring, w_ring, rest_ring, full, empty)
    pointers = (y0_ptr, y1_ptr, y2_ptr, y3_ptr)
    sizes: gl.constexpr = (N, K, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP_M, RUN, 1 + GATED)
    ahead: gl.constexpr = (CONSTANTS_AHEAD, SLOTS)
    formula: gl.constexpr = (KINDS, PROGRAM, OUTPUTS)
    first = (ring, turns, parts, pointers, slots, M, 0, sizes, ahead, formula)
    second = (ring, turns, parts, pointers, slots, M, 1, sizes, ahead, formula)
    blocks = (ring, x_desc, w_desc, rest_desc, M, sizes)
    if SLOTS:
        gl.warp_specialize(
            [
                (consume, first),
                (consume, second),
                (produce, blocks),
                (fetch, (parts, slots, M, sizes, ahead, KINDS)),
            ],
            [WARPS, 1, 1],
            [CONSUMER_REGISTERS, PRODUCER_REGISTERS, PRODUCER_REGISTERS],
        )
    else:
        gl.warp_specialize(
            [(consume, first), (consume, second), (produce, blocks)],
            [WARPS, 1],
            [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
        )


@gluon.jit
def parts_rings(slots, KINDS: gl.constexpr, SLOTS: gl.constexpr):
    """For both consumers: a ring for parts of each tensor operand, and their barriers."""
    rings = ()
    for i in gl.static_range(len(KINDS)):
        if KINDS[i] == "tensor":
            shape: gl.constexpr = [2 * SLOTS] + slots[i].block_type.shape
            rings = rings + (gl.allocate_shared_memory(slots[i].dtype, shape, slots[i].layout),)
        else:
            rings = rings + (0,)
    barriers = ()
    if SLOTS:
        there = gl.allocate_shared_memory(gl.int64, [2 * SLOTS, 1], mbarrier.MBarrierLayout())
        taken = gl.allocate_shared_memory(gl.int64, [2 * SLOTS, 1], mbarrier.MBarrierLayout())
        for i in gl.static_range(2 * SLOTS):
            mbarrier.init(there.index(i), count=tensors_in(KINDS))
            mbarrier.init(taken.index(i), count=1)
        barriers = (there, taken)
    return rings, barriers


@gluon.constexpr_function
def tensors_in(kinds):
    """How many of the operands are tensors."""
    return sum(kind == "tensor" for kind in kinds)


@gluon.jit
def produce(ring, x_desc, w_desc, rest_desc, M, sizes: gl.constexpr):
    """Load the blocks of all tiles of this program."""
    x_ring, w_ring, rest_ring, full, empty = ring
    N: gl.constexpr = sizes[0]
    K: gl.constexpr = sizes[1]
    BLOCK_M: gl.constexpr = sizes[2]
    BLOCK_N: gl.constexpr = sizes[3]
    BLOCK_K: gl.constexpr = sizes[4]
    STAGES: gl.constexpr = sizes[5]
    TILES_N: gl.constexpr = (N * sizes[8] + BLOCK_N - 1) // BLOCK_N
    STEPS: gl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    MAIN_N: gl.constexpr = main_columns(BLOCK_N)
    W_BYTES: gl.constexpr = w_desc.block_type.nbytes * BLOCK_N // MAIN_N
    BLOCK_BYTES: gl.constexpr = x_desc.block_type.nbytes + W_BYTES
    tiles_m = gl.cdiv(M, BLOCK_M)
    stage = 0
    parity = 1
    for tile in range(gl.program_id(0), tiles_m * TILES_N, gl.num_programs(0)):
        tile_m, tile_n = place_of(tile, tiles_m, TILES_N, sizes[6])
        for k in range(STEPS):
            mbarrier.wait(empty.index(stage), parity)
            ready = full.index(stage)
            mbarrier.expect(ready, BLOCK_BYTES)
            tma.async_copy_global_to_shared(
                x_desc, [tile_m * BLOCK_M, k * BLOCK_K], ready, x_ring.index(stage)
            )
            tma.async_copy_global_to_shared(
                w_desc, [tile_n * BLOCK_N, k * BLOCK_K], ready, w_ring.index(stage)
            )
            if BLOCK_N > MAIN_N:
                tma.async_copy_global_to_shared(
                    rest_desc,
                    [tile_n * BLOCK_N + MAIN_N, k * BLOCK_K],
                    ready,
                    rest_ring.index(stage),
                )
            stage, parity = next_stage(stage, parity, STAGES)


@gluon.jit
def fetch(parts, slots, M, sizes: gl.constexpr, ahead: gl.constexpr, KINDS: gl.constexpr):
    """Load what the epilogues of all tiles of this program read of tensors."""
    rings, barriers = parts
    there, taken = barriers
    SLOTS: gl.constexpr = ahead[1]
    BLOCK_M: gl.constexpr = sizes[2]
    BLOCK_N: gl.constexpr = sizes[3] // sizes[8]
    COLUMNS: gl.constexpr = 4 * sizes[7]
    TILES_N: gl.constexpr = (sizes[0] * sizes[8] + sizes[3] - 1) // sizes[3]
    PARTS_M: gl.constexpr = BLOCK_M // ROWS
    PARTS: gl.constexpr = PARTS_M * (BLOCK_N // COLUMNS)
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles = 0
    for tile in range(gl.program_id(0), tiles_m * TILES_N, gl.num_programs(0)):
        tile_m, tile_n = place_of(tile, tiles_m, TILES_N, sizes[6])
        for p in range(PARTS):
            number = tiles // 2 * PARTS + p
            slot = tiles % 2 * SLOTS + number % SLOTS
            ready = there.index(slot)
            mbarrier.wait(taken.index(slot), (number // SLOTS & 1) ^ 1)
            row = tile_m * BLOCK_M + p % PARTS_M * ROWS
            column = tile_n * BLOCK_N + p // PARTS_M * COLUMNS
            for i in gl.static_range(len(KINDS)):
                if KINDS[i] == "tensor":
                    mbarrier.expect(ready, slots[i].block_type.nbytes)
                    tma.async_copy_global_to_shared(slots[i], [row, column], ready, rings[i].index(slot))
        tiles += 1


@gluon.jit
def take_part(
    parts,
    number,
    CONSUMER: gl.constexpr,
    SLOTS: gl.constexpr,
    KINDS: gl.constexpr,
    LAYOUT: gl.constexpr,
):
    """The tensor operands of a consumer's part, by its number; 0 for all others."""
    rings, barriers = parts
    operands = ()
    if SLOTS:
        there, taken = barriers
        slot = CONSUMER * SLOTS + number % SLOTS
        mbarrier.wait(there.index(slot), number // SLOTS & 1)
        for i in gl.static_range(len(KINDS)):
            if KINDS[i] == "tensor":
                operands = operands + (rings[i].index(slot).load(LAYOUT),)
            else:
                operands = operands + (0,)
        mbarrier.arrive(taken.index(slot), count=1)
    return operands


@gluon.jit
def consume(
    ring,
    turns,
    parts,
    pointers,
    slots,
    M,
    CONSUMER: gl.constexpr,
    sizes: gl.constexpr,
    ahead: gl.constexpr,
    formula: gl.constexpr,
):
    """Multiply, finish and store every other tile of this program."""
    x_ring, w_ring, rest_ring, full, empty = ring
    N: gl.constexpr = sizes[0]
    K: gl.constexpr = sizes[1]
    BLOCK_M: gl.constexpr = sizes[2]
    BLOCK_N: gl.constexpr = sizes[3]
    STAGES: gl.constexpr = sizes[5]
    RUN: gl.constexpr = sizes[7]
    TILES_N: gl.constexpr = (N * sizes[8] + BLOCK_N - 1) // BLOCK_N
    STEPS: gl.constexpr = (K + sizes[4] - 1) // sizes[4]
    PARTS_M: gl.constexpr = BLOCK_M // ROWS
    PARTS_N: gl.constexpr = BLOCK_N // (4 * RUN * sizes[8])
    PARTS: gl.constexpr = PARTS_M * PARTS_N
    CONSTANTS_AHEAD: gl.constexpr = min(ahead[0], PARTS_N, MOST_AHEAD)
    SLOTS: gl.constexpr = ahead[1]
    KINDS: gl.constexpr = formula[0]
    PART: gl.constexpr = part_layout(RUN, WARPS)
    SUM: gl.constexpr = gl.int32 if x_ring.dtype == gl.int8 else gl.float32
    MAIN_N: gl.constexpr = main_columns(BLOCK_N)
    REST_N: gl.constexpr = BLOCK_N - MAIN_N
    BITS: gl.constexpr = x_ring.dtype.primitive_bitwidth
    tiles_m = gl.cdiv(M, BLOCK_M)
    programs = gl.num_programs(0)
    block = CONSUMER * STEPS
    turn = 1 - CONSUMER
    number = 0
    for tile in range(gl.program_id(0) + CONSUMER * programs, tiles_m * TILES_N, 2 * programs):
        tile_m, tile_n = place_of(tile, tiles_m, TILES_N, sizes[6])
        stage = block % STAGES
        parity = (block // STAGES) & 1
        block += 2 * STEPS
        # The constants of the first parts are on their way before there is anything to multiply.
        constants = ()
        for columns in gl.static_range(CONSTANTS_AHEAD):
            constants = constants + (load_constants(slots, tile_n, columns, sizes, formula, PART),)
        mbarrier.wait(turns.index(CONSUMER), turn)
        turn ^= 1

        sums = gl.zeros((BLOCK_M, MAIN_N), SUM, sums_layout(MAIN_N, BITS))
        if REST_N > 0:
            rest = gl.zeros((BLOCK_M, REST_N), SUM, sums_layout(REST_N, BITS))
        for k in range(STEPS):
            mbarrier.wait(full.index(stage), parity)
            x = x_ring.index(stage)
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
        mbarrier.arrive(turns.index(1 - CONSUMER), count=1)

        if REST_N > 0:
            sums, rest = warpgroup_mma_wait(0, deps=(sums, rest))
        else:
            sums = warpgroup_mma_wait(0, deps=(sums,))
        mbarrier.arrive(empty.index(stage_before(stage, STAGES)), count=1)
        finished = parts_of(sums, BLOCK_M, MAIN_N, part_layout(RUN * sizes[8], WARPS))
        if REST_N > 0:
            finished = finished + parts_of(rest, BLOCK_M, REST_N, part_layout(RUN * sizes[8], WARPS))
        # A loop, for machine code of a whole tile without one has to be fetched again and again.
        for j in range(PARTS_N):
            first = j * PARTS_M
            tensors = (take_part(parts, number + first, CONSUMER, SLOTS, KINDS, PART),)
            for q in gl.static_range(PARTS_M):
                if q + 1 < PARTS_M:
                    following = number + first + q + 1
                    tensors = tensors + (take_part(parts, following, CONSUMER, SLOTS, KINDS, PART),)
                store_part(
                    finished[q],
                    constants[0],
                    tensors[q],
                    pointers,
                    tile_m,
                    tile_n,
                    first + q,
                    M,
                    sizes,
                    formula,
                    PART,
                )
            later = (j + CONSTANTS_AHEAD) % PARTS_N
            constants = constants[1:] + (load_constants(slots, tile_n, later, sizes, formula, PART),)
            finished = finished[PARTS_M:] + finished[PARTS - PARTS_M :]
        number += PARTS


@gluon.constexpr_function
def main_columns(columns):
    """Those of the first sums of a tile: a power of two, as all blocks have; the rest has sums of its own."""
    return 1 << columns.bit_length() - 1


@gluon.constexpr_function
def sums_layout(columns, bits):
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 256 // bits]
    )


@gluon.jit
def place_of(tile, tiles_m, tiles_n: gl.constexpr, GROUP_M: gl.constexpr):
    """Row and column of a tile: groups of GROUP_M rows of tiles, so that programs share w."""
    GROUP: gl.constexpr = GROUP_M * tiles_n
    first = tile // GROUP * GROUP_M
    rows = gl.minimum(tiles_m - first, GROUP_M)
    inside = tile % GROUP
    return first + inside % rows, inside // rows


@gluon.jit
def next_stage(stage, parity, STAGES: gl.constexpr):
    """The next block's stage, and the parity of its round."""
    is_last = stage == STAGES - 1
    return gl.where(is_last, 0, stage + 1), gl.where(is_last, parity ^ 1, parity)


@gluon.jit
def stage_before(stage, STAGES: gl.constexpr):
    """The stage of the block before.

    Computed, for Triton 3.6 does not carry a variable through a loop that is set to another one there.
    """
    return gl.where(stage == 0, STAGES - 1, stage - 1)
