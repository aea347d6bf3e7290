# SPDX-License-Identifier: Apache-2.0
"""What attention does with sums in the registers that wgmma leaves them in, in Gluon.

Sums of int8 products become floats without a conversion: an integer n, |n| < 2**22, added to the bits of
1.5 * 2**23 gives those of 1.5 * 2**23 + n; the constant is taken off again where the largest score is, both
rounded together: a block's scores are off by half a unit of its sums at most, all alike.

Exponentials come from a unit with an eighth of the rate of additions. Some may be polynomials instead, as by
Dao et al. for Blackwell ("FlashAttention-4", 2025): 2**x is 2**n * p(x - n), n the nearest whole number and p
of degree 2, within 0.18 %, a thirtieth of the largest rounding to FP8.

A thread has the weights of keys 8 j + 2 t and the next, thread t of 4 (PTX ISA, wgmma, fragment of matrix D).
A product of 16-bit floats takes its left factor so. One of FP8 wants keys 16 j + 4 t to 16 j + 4 t + 3 of it:
it gets 16 j + 2 t, the next, and those 8 behind, and finds the values in that order.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from quantrt.kernels.expression.triton_kernel import evaluate, stored
from quantrt.kernels.functions.triton_kernel import INF, exp2

__all__ = [
    "load_scales",
    "over_columns",
    "scales_of",
    "store_attended",
    "sums_layout",
    "weigh",
    "weigh_masked",
    "weights_of",
]

MAGIC = gl.constexpr(0x4B400000)
MAGIC_FLOAT = gl.constexpr(12582912.0)
"""1.5 * 2**23: its bits, and its value."""
P_BITS = gl.constexpr(8.0)
"""Weights are at most 2**8: the largest power of two in FP8's 448."""


@gluon.jit
def weigh(scores, scale, largest, SCORES: gl.constexpr, POLYNOMIALS: gl.constexpr):
    """2**8 times the weights of a block, the largest score, their sums, and what became of earlier ones."""
    if scores.dtype == gl.int32:
        peak = gl.maximum(largest, gl.max(scores, axis=1).to(gl.float32) * scale)
        floats = (scores + MAGIC).to(gl.float32, bitcast=True)
        shift = peak - P_BITS + MAGIC_FLOAT * scale
    else:
        peak = gl.maximum(largest, gl.max(scores, axis=1) * scale)
        floats = scores
        shift = peak - P_BITS
    p = powers(gl.fma(floats, scale[:, None], -shift[:, None]), POLYNOMIALS)
    return p, peak, gl.sum(p, axis=1), exp2(largest - peak)


@gluon.jit
def weigh_masked(scores, scale, largest, rows, first, T, SCORES: gl.constexpr, IS_CAUSAL: gl.constexpr):
    """The same where there may be no key, or none that is seen."""
    if scores.dtype == gl.int32:
        floats = (scores + MAGIC).to(gl.float32, bitcast=True) - MAGIC_FLOAT
    else:
        floats = scores
    keys = first + gl.arange(0, scores.shape[1], gl.SliceLayout(0, SCORES))
    is_seen = (keys < T)[None, :]
    if IS_CAUSAL:
        is_seen = is_seen & (keys[None, :] <= rows[:, None])
    x = gl.where(is_seen, floats * scale[:, None], -INF)
    peak = gl.maximum(largest, gl.max(x, axis=1))
    base = gl.where(peak == -INF, 0.0, peak)
    p = exp2(x - (base - P_BITS)[:, None])
    return p, peak, gl.sum(p, axis=1), exp2(largest - base)


@gluon.constexpr_function
def powers_text(count):
    """PTX for 8 numbers, the first `count` by the polynomial; bits of floats are hexadecimal.

    -126, 1.5 * 2**23 to round with, and the coefficients 0.238429, 0.703448 and 1.000443, by linear
    programming for the least relative error on [-1/2, 1/2].
    """
    lines = ["{ .reg .f32 x, r, f; .reg .b32 n, b;"]
    for i in range(count):
        lines += [
            f"max.f32 x, ${8 + i}, 0fC2FC0000;",
            "add.rn.f32 r, x, 0f4B400000;",
            "mov.b32 n, r;",
            "add.rn.f32 r, r, 0fCB400000;",
            "sub.rn.f32 f, x, r;",
            "fma.rn.f32 r, f, 0f3E7426B9, 0f3F34152B;",
            "fma.rn.f32 r, r, f, 0f3F800E85;",
            "mov.b32 b, r;",
            "mad.lo.s32 b, n, 8388608, b;",
            f"mov.b32 ${i}, b;",
        ]
    lines += [f"ex2.approx.ftz.f32 ${i}, ${8 + i};" for i in range(count, 8)]
    return "\n".join([*lines, "}"])


@gluon.jit
def powers(x, COUNT: gl.constexpr):
    """2**x, COUNT of every 8 by a polynomial; below 2**-126 it is 0, or as small."""
    if COUNT == 0:
        y = exp2(x)
    else:
        y = gl.inline_asm_elementwise(
            powers_text(COUNT),
            "=f,=f,=f,=f,=f,=f,=f,=f,f,f,f,f,f,f,f,f",
            [x],
            dtype=gl.float32,
            is_pure=True,
            pack=8,
        )
    return y


@gluon.jit
def weights_of(p, ELEMENT: gl.constexpr, SUMS: gl.constexpr):
    """P [M, N] as the left factor of a product whose sums lie as SUMS says."""
    ROWS: gl.constexpr = p.shape[0]
    COLUMNS: gl.constexpr = p.shape[1]
    WIDTH: gl.constexpr = 32 // ELEMENT.primitive_bitwidth
    LEFT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=SUMS, k_width=WIDTH)
    x = p
    if ELEMENT.primitive_bitwidth == 8:
        x = x.reshape([ROWS, COLUMNS // 16, 2, 4, 2]).permute([0, 1, 3, 2, 4]).reshape([ROWS, COLUMNS])
    return gl.convert_layout(x, LEFT, assert_trivial=True).to(ELEMENT)


@gluon.constexpr_function
def sums_layout(columns, bits):
    """How 64 rows of sums lie in the registers of four warps."""
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 256 // bits]
    )


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
        row_scale = gl.load(q_scale_ptr + start + rows, mask=rows < S, other=0.0)
    else:
        row_scale = gl.full([rows.shape[0]], 1.0, gl.float32, rows.type.layout) * scale
    return row_scale, (k_scale_ptr, v_scale_ptr, place)


@gluon.jit
def load_scales(block_scales, block, blocks, K: gl.constexpr, V: gl.constexpr):
    """Of the keys of a block; and of the values of the block taken before it over those of this one."""
    k_scale_ptr, v_scale_ptr, place = block_scales
    k_scale = 1.0
    if K.primitive_bitwidth == 8:
        k_scale = gl.load(k_scale_ptr + place + block)
    v_ratio = 1.0
    if V.primitive_bitwidth == 8:
        before = gl.minimum(block + 1, blocks - 1)
        v_ratio = gl.load(v_scale_ptr + place + before) / gl.load(v_scale_ptr + place + block)
    return k_scale, v_ratio


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
    LAYOUT: gl.constexpr = x.type.layout
    registers = (x,)
    for i in gl.static_range(len(KINDS)):
        registers = registers + (slots[i],)
    results = evaluate(PROGRAM, registers)
    columns = gl.arange(0, BLOCK_D, gl.SliceLayout(0, LAYOUT))
    queries = gl.convert_layout(rows, gl.SliceLayout(1, LAYOUT))
    start = (sample.to(gl.int64) * y_b + head.to(gl.int64) * y_h) * sizes[6]
    offsets = queries.to(gl.int64)[:, None] * (y_s * sizes[6]) + columns[None, :]
    mask = (queries < S)[:, None]
    if D != BLOCK_D:
        mask = mask & (columns < D)[None, :]
    for i in gl.static_range(len(OUTPUTS)):
        result = stored(PROGRAM, OUTPUTS[i], results, pointers[i].dtype.element_ty)
        gl.store(pointers[i] + start + offsets, result, mask=mask)


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
