# SPDX-License-Identifier: Apache-2.0
"""Products of attention, and what it does with sums in the registers that wgmma leaves them in, in Gluon."""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma

from quantrt.kernels.jit.attention_weights import UNSEEN_CODES
from quantrt.kernels.jit.expression import evaluate, stored
from quantrt.kernels.jit.functions import LOG2E, exp2

__all__ = [
    "HIDDEN",
    "add_mask",
    "blocks_of",
    "hide_unseen",
    "load_scales",
    "mask_differs",
    "multiply_scores",
    "multiply_values",
    "ones_of",
    "over_columns",
    "peak_of",
    "place_of",
    "scales_of",
    "store_attended",
]

UNSEEN_FLOATS = gl.constexpr(-(2.0**126))
"""Scores of keys that are not seen. Times a scale it is exact: where no key was seen yet it is the largest
score, and weights are 1 until one is seen."""
LEAST_MASK = gl.constexpr(-(2.0**100))
HIDDEN = gl.constexpr(-(2.0**90))
"""What minus infinity in a mask becomes, so that a largest score is a number; and where it has become one."""


@gluon.jit
def ones_of(ELEMENT: gl.constexpr, SHAPE: gl.constexpr, LAYOUT: gl.constexpr):
    """Ones; of FP8 by their code: ptxas 12.8 makes another word of two equal halves that were converted."""
    if ELEMENT.primitive_bitwidth == 8:
        ones = gl.full(SHAPE, 0x38, gl.int8, LAYOUT).to(ELEMENT, bitcast=True)
    else:
        ones = gl.full(SHAPE, 1.0, ELEMENT, LAYOUT)
    return ones


@gluon.jit
def multiply_scores(q, k, SCORES: gl.constexpr):
    """q @ k^T, begun."""
    SUM: gl.constexpr = gl.int32 if q.dtype == gl.int8 else gl.float32
    QUERIES: gl.constexpr = q.shape[0]
    KEYS: gl.constexpr = k.shape[0]
    zeros = gl.zeros((QUERIES, KEYS), SUM, SCORES)
    return warpgroup_mma(q, k.permute((1, 0)), zeros, use_acc=False, is_async=True)


@gluon.jit
def multiply_values(weights, v, sums, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr):
    """weights @ v, begun: of FP8 for itself, else on top of the sums."""
    IS_FP8: gl.constexpr = v.dtype.primitive_bitwidth == 8
    if IS_FP8:
        values = v.reshape([BLOCK_D, BLOCK_N]).permute((1, 0))
    else:
        values = v.reshape([BLOCK_N, BLOCK_D])
    return warpgroup_mma(weights, values, sums, use_acc=not IS_FP8, is_async=True)


@gluon.jit
def hide_unseen(scores, rows, first, T, SCORES: gl.constexpr, IS_CAUSAL: gl.constexpr):
    """Scores of a block whose first key is `first`, where there may be no key, or none that is seen."""
    keys = first + gl.arange(0, scores.shape[1], gl.SliceLayout(0, SCORES))
    is_seen = (keys < T)[None, :]
    if IS_CAUSAL:
        is_seen = is_seen & (keys[None, :] <= rows[:, None])
    return gl.where(is_seen, scores, UNSEEN_CODES if scores.dtype == gl.int32 else UNSEEN_FLOATS)


@gluon.jit
def mask_differs(ring, stage, number, count):
    """Whether the first elements of the part of a mask in a stage have other numbers than this one."""
    part = ring.index(stage)
    COLUMNS: gl.constexpr = part.shape[3]
    LAYOUT: gl.constexpr = gl.BlockedLayout([COLUMNS // 32], [32], [4], [0])
    given = part.reshape([COLUMNS]).load(LAYOUT).to(gl.float32)
    is_same = (given == number) | (gl.arange(0, COLUMNS, LAYOUT) >= count)
    return uniform(gl.max(gl.where(is_same, 0, 1), axis=0)) != 0


@gluon.jit
def uniform(x):
    """A number that all threads have; by a shuffle, so that the compiler sees it."""
    return gl.inline_asm_elementwise(
        "shfl.sync.idx.b32 $0, $1, 0, 31, -1;", "=r,r", [x], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def add_mask(scores, ring, stage, scale, SCORES: gl.constexpr):
    """Scores of floats that give exponents of 2 with the mask in them when they are scaled."""
    part = ring.index(stage)
    given = part.reshape([part.shape[3]]).load(gl.SliceLayout(0, SCORES))
    added = given.to(gl.float32) * (LOG2E / scale)
    return scores + gl.where(added < LEAST_MASK, LEAST_MASK, added)[None, :]


@gluon.jit
def peak_of(scores, scale, largest):
    """The largest score so far, and what becomes of earlier weights."""
    peak = gl.maximum(largest, gl.max(scores, axis=1).to(gl.float32) * scale)
    return peak, exp2(largest - peak)


@gluon.jit
def over_columns(x, SUMS: gl.constexpr):
    """A number for every row, as a column."""
    return gl.convert_layout(x, gl.SliceLayout(1, SUMS), assert_trivial=True)[:, None]


@gluon.jit
def scales_of(scales, sample, head, rows, lengths, sizes: gl.constexpr, K: gl.constexpr):
    """The factor of every query's scores, and where those of blocks of keys and values are."""
    q_scale_ptr, k_scale_ptr, v_scale_ptr, scale = scales
    _, H, S, T = lengths
    blocks = gl.cdiv(T, sizes[2])
    place = (sample * (H // sizes[0]) + head // sizes[0]) * blocks
    if K.primitive_bitwidth == 8:
        start = (sample * H + head).to(gl.int64) * S
        row_scale = gl.load(q_scale_ptr + start + rows, mask=rows < S, other=1.0)
    else:
        row_scale = gl.full([rows.shape[0]], 1.0, gl.float32, rows.type.layout) * scale
    return row_scale, (k_scale_ptr, v_scale_ptr, place)


@gluon.jit
def load_scales(block_scales, block, K: gl.constexpr, V: gl.constexpr):
    """Of the keys and the values of a block; 1 for floats."""
    k_scale_ptr, v_scale_ptr, place = block_scales
    k_scale = 1.0
    v_scale = 1.0
    if K.primitive_bitwidth == 8:
        k_scale = gl.load(k_scale_ptr + place + block)
    if V.primitive_bitwidth == 8:
        v_scale = gl.load(v_scale_ptr + place + block)
    return k_scale, v_scale


@gluon.jit
def store_attended(
    sums,
    total,
    block_scales,
    rows,
    sample,
    head,
    S,
    y,
    sizes: gl.constexpr,
    V: gl.constexpr,
    SUMS: gl.constexpr,
    formula: gl.constexpr,
):
    """The epilogue of what was attended to, stored."""
    _, v_scale_ptr, place = block_scales
    pointers, strides, slots = y
    y_b, y_h, y_s = strides
    D: gl.constexpr = sizes[1]
    BLOCK_D: gl.constexpr = sizes[3]
    KINDS: gl.constexpr = formula[0]
    PROGRAM: gl.constexpr = formula[1]
    OUTPUTS: gl.constexpr = formula[2]
    factor = gl.where(total == 0.0, 0.0, 1.0 / total)
    if V.primitive_bitwidth == 8:
        # The block that was taken last is the first one.
        factor = factor * gl.load(v_scale_ptr + place)
    x = sums * over_columns(factor, SUMS)
    if V.primitive_bitwidth == 8:
        # Column 8 j + 2 t + b of the product is column BLOCK_D / 4 t + 2 j + b of v.
        x = x.reshape([64, BLOCK_D // 8, 4, 2]).permute([0, 2, 1, 3]).reshape([64, BLOCK_D])
        x = gl.convert_layout(x, run_layout(BLOCK_D // 4), assert_trivial=True)
    registers = (x,)
    for i in gl.static_range(len(KINDS)):
        registers = registers + (slots[i],)
    results = evaluate(PROGRAM, registers)
    start = (sample.to(gl.int64) * y_b + head.to(gl.int64) * y_h) * sizes[5]
    for i in gl.static_range(len(OUTPUTS)):
        result = stored(PROGRAM, OUTPUTS[i], results, pointers[i].dtype.element_ty)
        if V.primitive_bitwidth > 8:
            # Threads have two columns side by side; stores are of 16 bytes.
            result = gl.convert_layout(result, store_layout(BLOCK_D, result.dtype))
        LAYOUT: gl.constexpr = result.type.layout
        columns = gl.arange(0, BLOCK_D, gl.SliceLayout(0, LAYOUT))
        queries = gl.convert_layout(rows, gl.SliceLayout(1, LAYOUT))
        offsets = queries.to(gl.int64)[:, None] * (y_s * sizes[5]) + columns[None, :]
        mask = (queries < S)[:, None]
        if D != BLOCK_D:
            mask = mask & (columns < D)[None, :]
        gl.store(pointers[i] + start + offsets, result, mask=mask)


@gluon.constexpr_function
def store_layout(columns, element):
    """[64, columns]: 16 bytes of a row for each thread."""
    run = min(columns, 128 // element.primitive_bitwidth)
    across = min(32, columns // run)
    return gl.BlockedLayout([1, run], [32 // across, across], [4, 1], [1, 0])


@gluon.constexpr_function
def run_layout(run):
    """[64, 4 run]: each of 4 threads of a row has `run` columns side by side, of two rows."""
    return gl.DistributedLinearLayout(
        reg_bases=[*([0, 1 << i] for i in range(run.bit_length() - 1)), [8, 0]],
        lane_bases=[[0, run], [0, 2 * run], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, 4 * run],
    )


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
