# SPDX-License-Identifier: Apache-2.0
"""Weights of keys from their scores, in Gluon, in the registers that wgmma leaves the scores in.

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

from quantrt.kernels.functions.triton_kernel import INF, exp2

__all__ = ["weigh", "weigh_masked", "weights_of"]

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
