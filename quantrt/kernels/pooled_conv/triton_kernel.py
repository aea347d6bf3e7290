# SPDX-License-Identifier: Apache-2.0
"""y[images, P, Q, N] = epilogue(max pool(conv(x, w))), windows of 3 by 3 in steps of 2, in Gluon.

The pool takes sums, which the epilogue follows: it never falls as a sum grows, so the largest sum has the
largest result. x are folded pixels, see kernels/fold_pixels; the convolution's windows are R lines high.

A program walks down LINES lines of pooled pixels, of two lines of sums each, and keeps the last line of sums
for the next: no line is computed twice but the first of a program. Four segments lie beside each other, one
of a group of 16 sums for each warp: of 7 pooled pixels, whose windows read 15 columns. The copy engine brings
the even columns of a segment ahead of the odd ones, so that a thread has two neighbours in its two rows of
sums, k and k + 8, and the window's third column is the odd one of the lanes before.

Lines of x lie in a ring of STAGES; line i of the program in stage i % STAGES, in round i // STAGES. All warps
have seen the products that read the oldest two lines when these are overwritten.
"""

# mypy: ignore-errors
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from quantrt.kernels.jit.fragments import finish_part, load_constants, part_layout, parts_of
from quantrt.kernels.jit.ring import sums_layout

__all__ = ["pooled_conv"]

WARPS = gl.constexpr(4)
SEGMENTS = gl.constexpr(4)
PAIRS = gl.constexpr(8)
"""Of a program; of columns in a segment, one more than pooled pixels."""


@gluon.jit
def pooled_conv(
    x_desc,
    w_desc,
    pointers,
    slots,
    P,
    Q,
    U,
    N: gl.constexpr,
    R: gl.constexpr,
    C: gl.constexpr,
    KINDS: gl.constexpr,
    PROGRAM: gl.constexpr,
    OUTPUTS: gl.constexpr,
    PITCHES: gl.constexpr,
    RUN: gl.constexpr,
    LINES: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Program (segments / 4, band of LINES lines, image); U lines of x an image."""
    gl.static_assert(STAGES >= R + 2)
    gl.static_assert(N == 4 * RUN)
    x_ring = gl.allocate_shared_memory(x_desc.dtype, [STAGES, 2 * SEGMENTS * PAIRS, C], w_desc.layout)
    w_rows = gl.allocate_shared_memory(w_desc.dtype, [R, N, C], w_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    w_full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
    mbarrier.init(w_full.index(0), count=1)
    fence_async_shared()

    segment = gl.program_id(0) * SEGMENTS
    p = gl.program_id(1) * LINES
    image = gl.program_id(2)
    count = gl.minimum(LINES, P - p)
    lines = 2 * count + R
    first = image * U + 2 * p - 1
    mbarrier.expect(w_full.index(0), R * w_desc.block_type.nbytes)
    for r in gl.static_range(R):
        tma.async_copy_global_to_shared(w_desc, [0, r * C], w_full.index(0), w_rows.index(r))
    for i in gl.static_range(STAGES):
        load_line(x_desc, x_ring, full, first, segment, i, lines, STAGES)

    SUM: gl.constexpr = gl.int32 if x_desc.dtype == gl.int8 else gl.float32
    SUMS: gl.constexpr = sums_layout(N, x_desc.dtype.primitive_bitwidth)
    POOLED: gl.constexpr = pooled_layout(RUN)
    sizes: gl.constexpr = (N, R * C, SEGMENTS * PAIRS, N, C, STAGES, 1, RUN, 1)
    formula: gl.constexpr = (KINDS, PROGRAM, OUTPUTS, PITCHES)
    rows = gl.arange(0, SEGMENTS * PAIRS, gl.SliceLayout(1, POOLED))
    offs_n = gl.arange(0, N, gl.SliceLayout(0, POOLED))
    q = (segment + rows // PAIRS) * (PAIRS - 1) + rows % PAIRS - 1
    there = (rows % PAIRS > 0) & (q < Q)
    constants = load_constants(slots, 0, 0, sizes, formula, POOLED)

    mbarrier.wait(w_full.index(0), 0)
    for i in gl.static_range(R):
        mbarrier.wait(full.index(i), 0)
    sums = line_sums(x_ring, w_rows, 0, gl.zeros((2 * SEGMENTS * PAIRS, N), SUM, SUMS), R, STAGES)
    sums = warpgroup_mma_wait(0, deps=(sums,))
    above = (gl.where(p > 0, sums, gl.full(sums.shape, lowest(SUM), SUM, SUMS)),)
    for j in range(count):
        for i in gl.static_range(2):
            line = 2 * j + R + i
            mbarrier.wait(full.index(line % STAGES), line // STAGES & 1)
        upper = line_sums(x_ring, w_rows, 2 * j + 1, gl.zeros(sums.shape, SUM, SUMS), R, STAGES)
        lower = line_sums(x_ring, w_rows, 2 * j + 2, gl.zeros(sums.shape, SUM, SUMS), R, STAGES)
        upper, lower = warpgroup_mma_wait(0, deps=(upper, lower))
        gl.thread_barrier()
        for i in gl.static_range(2):
            load_line(x_desc, x_ring, full, first, segment, 2 * j + STAGES + i, lines, STAGES)

        tall = gl.maximum(gl.maximum(above[0], upper), lower)
        above = (lower,)
        pooled = pooled_columns(tall, q, N, RUN, POOLED)
        place = (image.to(gl.int64) * P * Q + (p + j) * Q, 0, q, offs_n, there)
        finish_part(pooled, constants, constants, pointers, place, sizes, formula, POOLED)


@gluon.jit
def load_line(x_desc, x_ring, full, first, segment, i, lines, STAGES: gl.constexpr):
    """Ask for line i of the program's, where it has so many."""
    ready = full.index(i % STAGES)
    block = x_ring.index(i % STAGES)._reinterpret(x_ring.dtype, x_desc.block_type.shape, x_desc.layout)
    mbarrier.expect(ready, x_desc.block_type.nbytes, pred=i < lines)
    tma.async_copy_global_to_shared(x_desc, [first + i, segment, 0, 0, 0], ready, block, pred=i < lines)


@gluon.jit
def line_sums(x_ring, w_rows, line, sums, R: gl.constexpr, STAGES: gl.constexpr):
    """Begin the products of a line of the convolution: R lines of x from `line` on."""
    for r in gl.static_range(R):
        x = x_ring.index((line + r) % STAGES)
        sums = warpgroup_mma(x, w_rows.index(r).permute((1, 0)), sums, use_acc=r > 0, is_async=True)
    return sums


@gluon.jit
def pooled_columns(sums, q, N: gl.constexpr, RUN: gl.constexpr, LAYOUT: gl.constexpr):
    """[pairs, N]: the largest of three columns, of the first pair of a segment something else."""
    part = parts_of(sums, 2 * SEGMENTS * PAIRS, N, part_layout(RUN, WARPS))[0]
    even, odd = gl.split(part.reshape([SEGMENTS, 2, PAIRS, N]).permute([0, 2, 3, 1]))
    even = gl.convert_layout(even.reshape([SEGMENTS * PAIRS, N]), LAYOUT)
    odd = gl.convert_layout(odd.reshape([SEGMENTS * PAIRS, N]), LAYOUT)
    outside = gl.full(odd.shape, lowest(odd.dtype), odd.dtype, LAYOUT)
    before = gl.where((q == 0)[:, None], outside, of_lanes_before(odd))
    return gl.maximum(gl.maximum(even, odd), before)


@gluon.constexpr_function
def pooled_layout(run):
    """[pairs, 4 run]: as kernels/jit/fragments has parts, without the rows of odd columns."""
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 1 << i] for i in range(run.bit_length() - 1)],
        lane_bases=[[0, run], [0, 2 * run], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[8, 0], [16, 0]],
        block_bases=[],
        shape=[32, 4 * run],
    )


@gluon.constexpr_function
def lowest(dtype):
    return -(1 << 31) if dtype == gl.int32 else -float("inf")


@triton.jit
def of_lanes_before(x):
    """What the lanes of the row before have of a block in `pooled_layout`; four lanes have a row."""
    bits = tl.inline_asm_elementwise(
        "shfl.sync.up.b32 $0, $1, 4, 0, 0xffffffff;",
        "=r,r",
        [x.to(tl.int32, bitcast=True)],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    return bits.to(x.dtype, bitcast=True)
