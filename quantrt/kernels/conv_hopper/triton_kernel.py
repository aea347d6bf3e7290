# SPDX-License-Identifier: Apache-2.0
"""y[images, P, Q, N] = epilogue(conv(x, w)) with a producer and two consumers in turns, in Gluon.

A tile's rows are a box of output pixels: BOX images, lines and columns, at most BLOCK_M in all. What one tap
(r, s) multiplies of BLOCK_K channels is a box of x as large, which the copy engine fetches by its corner: it
walks in steps of STRIDES, and reads zeros beyond the image, which are the padding, and beyond C. So there are
no addresses and no masks in the loop over taps and channels. w is [rows in the order of
`kernels.gemm_hopper.spec.rows_in_order`, R * S * C]; where BLOCK_K does not divide C a block of w reaches
into the next tap, and is multiplied by zeros there.

Or a box is of one image and multiples of 8 columns, and a copy brings the lines that all R taps of a column
of the window read (TAPS = R): tap r multiplies what lies r * BOX[2] rows further on in shared memory, whole
periods of 8 rows. For windows of 3x3 that is little more than a third of the rows to be copied, where strides
along a column are 1.

With PHASES there are as many convolutions of x as their product, each with R by S taps of its own: w is
[rows, phases * R * S * C]. Phase (i, j) makes lines i, i + PHASES[0], ... of y, and columns likewise; its
windows begin (i + LEADS[0]) // PHASES[0] lines, and columns likewise, behind those of a convolution without
phases. Tiles of one phase follow on those of the one before it, so that a weight is read once.

Programs, tiles, the ring, its barriers and who waits for what are those of kernels/gemm_hopper, with a sum of
R / TAPS * S * (blocks of C) steps. Where shared memory holds the whole weight (HOLDS_W), its blocks come with
those of x of the program's first tile and stay: the consumer of that tile waits for them, the other one
begins when that has issued its last product. A box with fewer than BLOCK_M pixels leaves the last rows of its
stage as they were; their sums are not stored, nor are those of pixels beyond the images, P and Q.
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

from quantrt.kernels.gemm_hopper.triton_kernel import CONSUMER_REGISTERS, PRODUCER_REGISTERS
from quantrt.kernels.jit.boxes import boxes_of, corner_of, phase_of, pixels_of
from quantrt.kernels.jit.fragments import (
    finish_part,
    load_blocks,
    load_constants,
    part_layout,
    parts_of,
)
from quantrt.kernels.jit.ring import WARPS, next_stage, place_of, stage_before

__all__ = ["conv_hopper"]

SHARED_REGISTERS = gl.constexpr(104)
"""Of a consumer's thread where two programs share a multiprocessor: as launched with 80."""

PERIOD = gl.constexpr(8)
"""Rows of shared memory in which 16-byte pieces change places; PTX ISA, wgmma, canonical layouts."""


@gluon.jit
def conv_hopper(
    x_desc,
    w_desc,
    pointers,
    slots,
    images,
    P,
    Q,
    N: gl.constexpr,
    R: gl.constexpr,
    S: gl.constexpr,
    C: gl.constexpr,
    STRIDES: gl.constexpr,
    PADS: gl.constexpr,
    DILATIONS: gl.constexpr,
    KINDS: gl.constexpr,
    PROGRAM: gl.constexpr,
    OUTPUTS: gl.constexpr,
    PITCHES: gl.constexpr,
    RUN: gl.constexpr,
    BOX: gl.constexpr,
    TAPS: gl.constexpr,
    HOLDS_W: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP_M: gl.constexpr,
    CONSTANTS_AHEAD: gl.constexpr,
    TENSORS_AHEAD: gl.constexpr,
    IS_LOOPED: gl.constexpr,
    NEIGHBOURS: gl.constexpr,
    PHASES: gl.constexpr = (1, 1),
    LEADS: gl.constexpr = (0, 0),
):
    gl.static_assert(STAGES >= 2)
    gl.static_assert(PHASES[0] * PHASES[1] == 1 or not HOLDS_W)
    gl.static_assert(BOX[0] * BOX[1] * BOX[2] <= BLOCK_M)
    gl.static_assert(N <= BLOCK_N or not HOLDS_W)
    gl.static_assert(TAPS == 1 or (TAPS == R and STRIDES[0] == 1 and BOX[0] == 1 and BOX[2] % PERIOD == 0))
    STEPS: gl.constexpr = R // TAPS * S * ((C + BLOCK_K - 1) // BLOCK_K)
    # Rows of shared memory from one tap of a column to the next, and of x in a stage.
    REACH: gl.constexpr = DILATIONS[0] * BOX[2]
    X_ROWS: gl.constexpr = BLOCK_M + (TAPS - 1) * REACH
    x_ring = gl.allocate_shared_memory(
        x_desc.dtype, [STAGES * X_ROWS // PERIOD, PERIOD, BLOCK_K], w_desc.layout
    )
    W_BLOCKS: gl.constexpr = TAPS * (STEPS if HOLDS_W else STAGES)
    w_ring = gl.allocate_shared_memory(w_desc.dtype, [W_BLOCKS, BLOCK_N, BLOCK_K], w_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    mbarrier.init(turns.index(0), count=1)
    mbarrier.init(turns.index(1), count=1)
    fence_async_shared()

    ring = (x_ring, w_ring, full, empty)
    outputs = (images, P, Q)
    sizes: gl.constexpr = (N, R * S * C, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP_M, RUN, 1)
    cut: gl.constexpr = (STEPS, BOX, TAPS, HOLDS_W, REACH, X_ROWS, PHASES)
    windows: gl.constexpr = (S, C, STRIDES, PADS, DILATIONS, LEADS)
    ahead: gl.constexpr = (CONSTANTS_AHEAD, TENSORS_AHEAD, IS_LOOPED)
    formula: gl.constexpr = (KINDS, PROGRAM, OUTPUTS, PITCHES)
    gl.warp_specialize(
        [
            (consume, (ring, turns, pointers, slots, outputs, 0, cut, sizes, ahead, formula)),
            (consume, (ring, turns, pointers, slots, outputs, 1, cut, sizes, ahead, formula)),
            (produce, (ring, x_desc, w_desc, outputs, cut, sizes, windows)),
        ],
        [WARPS, 1],
        [CONSUMER_REGISTERS if NEIGHBOURS == 1 else SHARED_REGISTERS, PRODUCER_REGISTERS],
    )


@gluon.jit
def produce(
    ring,
    x_desc,
    w_desc,
    outputs,
    cut: gl.constexpr,
    sizes: gl.constexpr,
    windows: gl.constexpr,
):
    """Load the blocks of all tiles of this program."""
    x_ring, w_ring, full, empty = ring
    BLOCK_N: gl.constexpr = sizes[3]
    BLOCK_K: gl.constexpr = sizes[4]
    STAGES: gl.constexpr = sizes[5]
    STEPS: gl.constexpr = cut[0]
    BOX: gl.constexpr = cut[1]
    TAPS: gl.constexpr = cut[2]
    HOLDS_W: gl.constexpr = cut[3]
    REACH: gl.constexpr = cut[4]
    X_ROWS: gl.constexpr = cut[5]
    PHASES: gl.constexpr = cut[6]
    LEADS: gl.constexpr = windows[5]
    S: gl.constexpr = windows[0]
    C: gl.constexpr = windows[1]
    STRIDES: gl.constexpr = windows[2]
    PADS: gl.constexpr = windows[3]
    DILATIONS: gl.constexpr = windows[4]
    TILES_N: gl.constexpr = (sizes[0] + BLOCK_N - 1) // BLOCK_N
    C_BLOCKS: gl.constexpr = (C + BLOCK_K - 1) // BLOCK_K
    ROW_BYTES: gl.constexpr = BLOCK_K * x_desc.dtype.primitive_bitwidth // 8
    X_BYTES: gl.constexpr = (BOX[0] * BOX[1] * BOX[2] + (TAPS - 1) * REACH) * ROW_BYTES
    W_BYTES: gl.constexpr = TAPS * BLOCK_N * ROW_BYTES
    BLOCK: gl.constexpr = x_desc.block_type.shape
    LAYOUT: gl.constexpr = x_desc.layout
    boxes = boxes_of(outputs, BOX)
    tiles_m = boxes * (PHASES[0] * PHASES[1])
    stage = 0
    parity = 1
    for tile in range(gl.program_id(0), tiles_m * TILES_N, gl.num_programs(0)):
        tile_m, tile_n = place_of(tile, tiles_m, TILES_N, sizes[6])
        phase, number = phase_of(tile_m, boxes, PHASES)
        image, p, q = corner_of(number, outputs, BOX)
        y = p * STRIDES[0] - PADS[0] + (phase // PHASES[1] + LEADS[0]) // PHASES[0]
        x = q * STRIDES[1] - PADS[1] + (phase % PHASES[1] + LEADS[1]) // PHASES[1]
        for step in range(STEPS):
            tap = step // C_BLOCKS  # of all taps, or of those of the first line
            c = step % C_BLOCKS * BLOCK_K
            line = y + tap // S * DILATIONS[0]
            column = x + tap % S * DILATIONS[1]
            mbarrier.wait(empty.index(stage), parity)
            ready = full.index(stage)
            if not HOLDS_W or tile == gl.program_id(0):
                mbarrier.expect(ready, X_BYTES + W_BYTES)
                w_block = TAPS * (step if HOLDS_W else stage)
                for r in gl.static_range(TAPS):
                    place = [tile_n * BLOCK_N, phase * sizes[1] + (r * S + tap) * C + c]
                    tma.async_copy_global_to_shared(w_desc, place, ready, w_ring.index(w_block + r))
            else:
                mbarrier.expect(ready, X_BYTES)
            block = rows_from(x_ring, stage * X_ROWS, BLOCK, LAYOUT)
            tma.async_copy_global_to_shared(x_desc, [image, line, column, c], ready, block)
            stage, parity = next_stage(stage, parity, STAGES)


@gluon.jit
def consume(
    ring,
    turns,
    pointers,
    slots,
    outputs,
    CONSUMER: gl.constexpr,
    cut: gl.constexpr,
    sizes: gl.constexpr,
    ahead: gl.constexpr,
    formula: gl.constexpr,
):
    """Multiply, finish and store every other tile of this program."""
    x_ring, w_ring, full, empty = ring
    STEPS: gl.constexpr = cut[0]
    BOX: gl.constexpr = cut[1]
    TAPS: gl.constexpr = cut[2]
    HOLDS_W: gl.constexpr = cut[3]
    REACH: gl.constexpr = cut[4]
    X_ROWS: gl.constexpr = cut[5]
    PHASES: gl.constexpr = cut[6]
    BLOCK_M: gl.constexpr = sizes[2]
    BLOCK_N: gl.constexpr = sizes[3]
    BLOCK_K: gl.constexpr = sizes[4]
    STAGES: gl.constexpr = sizes[5]
    RUN: gl.constexpr = sizes[7]
    TILES_N: gl.constexpr = (sizes[0] + BLOCK_N - 1) // BLOCK_N
    PARTS_M: gl.constexpr = BLOCK_M // (16 * WARPS)
    PARTS_N: gl.constexpr = BLOCK_N // (4 * RUN)
    PARTS: gl.constexpr = PARTS_M * PARTS_N
    IS_LOOPED: gl.constexpr = ahead[2]
    CONSTANTS_AHEAD: gl.constexpr = 1 if IS_LOOPED else min(ahead[0], PARTS_N)
    TENSORS_AHEAD: gl.constexpr = min(ahead[1], PARTS)
    BLOCK: gl.constexpr = (BLOCK_M, BLOCK_K)
    LAYOUT: gl.constexpr = x_ring.layout
    PART: gl.constexpr = part_layout(RUN, WARPS)
    SUM: gl.constexpr = gl.int32 if x_ring.dtype == gl.int8 else gl.float32
    SUMS: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0],
        warps_per_cta=[WARPS, 1],
        instr_shape=[16, BLOCK_N, 256 // x_ring.dtype.primitive_bitwidth],
    )
    boxes = boxes_of(outputs, BOX)
    tiles_m = boxes * (PHASES[0] * PHASES[1])
    programs = gl.num_programs(0)
    block = CONSUMER * STEPS
    turn = 1 - CONSUMER
    for tile in range(gl.program_id(0) + CONSUMER * programs, tiles_m * TILES_N, 2 * programs):
        tile_m, tile_n = place_of(tile, tiles_m, TILES_N, sizes[6])
        phase, number = phase_of(tile_m, boxes, PHASES)
        corner = corner_of(number, outputs, BOX)
        stage = block % STAGES
        parity = (block // STAGES) & 1
        block += 2 * STEPS
        # What the first parts read is on its way before there is anything to multiply.
        constants = ()
        for j in gl.static_range(CONSTANTS_AHEAD):
            constants = constants + (load_constants(slots, tile_n, j, sizes, formula, PART),)
        tensors = ()
        for p in gl.static_range(TENSORS_AHEAD):
            place = pixels_of(corner, tile_n, p, outputs, BOX, sizes, PART, phase, PHASES)
            tensors = tensors + (load_blocks(slots, place, sizes, formula),)
        mbarrier.wait(turns.index(CONSUMER), turn)
        turn ^= 1

        sums = gl.zeros((BLOCK_M, BLOCK_N), SUM, SUMS)
        for k in range(STEPS):
            mbarrier.wait(full.index(stage), parity)
            w_block = TAPS * (k if HOLDS_W else stage)
            for r in gl.static_range(TAPS):
                sums = warpgroup_mma(
                    rows_from(x_ring, stage * X_ROWS + r * REACH, BLOCK, LAYOUT),
                    w_ring.index(w_block + r).permute((1, 0)),
                    sums,
                    use_acc=True if r else k > 0,
                    is_async=True,
                )
            # This step's products stay unfinished, so the block before this one is read no more.
            sums = warpgroup_mma_wait(TAPS, deps=(sums,))
            mbarrier.arrive(empty.index(stage_before(stage, STAGES)), count=1, pred=k > 0)
            stage, parity = next_stage(stage, parity, STAGES)
        mbarrier.arrive(turns.index(1 - CONSUMER), count=1)

        sums = warpgroup_mma_wait(0, deps=(sums,))
        mbarrier.arrive(empty.index(stage_before(stage, STAGES)), count=1)
        parts = parts_of(sums, BLOCK_M, BLOCK_N, part_layout(RUN, WARPS))
        if IS_LOOPED:
            # Long machine code would have to be fetched again for every tile.
            for j in range(PARTS_N):
                following = load_constants(slots, tile_n, (j + 1) % PARTS_N, sizes, formula, PART)
                for q in gl.static_range(PARTS_M):
                    later = j * PARTS_M + q + TENSORS_AHEAD
                    place = pixels_of(corner, tile_n, later, outputs, BOX, sizes, PART, phase, PHASES)
                    place = (place[0], place[1], place[2], place[3], place[4] & (later < PARTS))
                    tensors = tensors + (load_blocks(slots, place, sizes, formula),)
                    place = pixels_of(
                        corner, tile_n, j * PARTS_M + q, outputs, BOX, sizes, PART, phase, PHASES
                    )
                    finish_part(parts[q], constants[0], tensors[q], pointers, place, sizes, formula, PART)
                constants = constants[1:] + (following,)
                tensors = tensors[PARTS_M:]
                parts = parts[PARTS_M:] + parts[:PARTS_M]
        else:
            for p in gl.static_range(PARTS):
                if p % PARTS_M == 0:
                    if p // PARTS_M + CONSTANTS_AHEAD < PARTS_N:
                        later = p // PARTS_M + CONSTANTS_AHEAD
                        constants = constants + (load_constants(slots, tile_n, later, sizes, formula, PART),)
                if p + TENSORS_AHEAD < PARTS:
                    place = pixels_of(
                        corner, tile_n, p + TENSORS_AHEAD, outputs, BOX, sizes, PART, phase, PHASES
                    )
                    tensors = tensors + (load_blocks(slots, place, sizes, formula),)
                place = pixels_of(corner, tile_n, p, outputs, BOX, sizes, PART, phase, PHASES)
                column = constants[p // PARTS_M]
                finish_part(parts[p], column, tensors[p], pointers, place, sizes, formula, PART)


@gluon.jit
def rows_from(ring, row, shape: gl.constexpr, layout: gl.constexpr):
    """A block of shared memory that begins at a row, which begins a period."""
    return ring.index(row // PERIOD)._reinterpret(ring.dtype, shape, layout)
