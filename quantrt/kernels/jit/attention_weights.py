# SPDX-License-Identifier: Apache-2.0
"""Scores of attention, as wgmma hands them out, turned into weights, in Gluon.

Sums of int8 products become floats without a conversion: an integer n, |n| < 2**22, added to the bits of
1.5 * 2**23 gives those of 1.5 * 2**23 + n; the constant is taken off again where the largest score is, both
rounded together: a block's scores are off by half a unit of its sums at most, all alike.

Exponentials come from a unit with an eighth of the rate of additions. FP8 codes of some may come without: an
E4M3 code is 8 * (log2 of the number + 7), rounded, but for what a straight line between two powers of two is
off, 0.69 of a code at most. LINES of every two words of 4 codes are such lines, and what they are off on
average is taken off (Schraudolph, "A fast, compact approximation of the exponential function", 1999).

Where all codes are lines, and sums are int8's, a code takes one product with a sum and half an instruction:
the bits that n is added to are those of so small a number, and its factor is such, that the result is a
denormal number whose bits are the code, rounded. Two of those are packed at once, negative ones as 0.

A thread has the weights of keys 8 j + 2 t and the next, thread t of 4 (PTX ISA, wgmma, fragment of matrix D).
A product of 16-bit floats takes its left factor so. One of FP8 wants keys 16 j + 4 t to 16 j + 4 t + 3 of it:
it gets 16 j + 2 t, the next, and those 8 behind, and finds the values in that order.
"""

# mypy: ignore-errors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from quantrt.kernels.jit.functions import exp2

__all__ = ["MAGIC_FLOAT", "UNSEEN_CODES", "weights_of"]

MAGIC = gl.constexpr(0x4B400000)
MAGIC_FLOAT = gl.constexpr(12582912.0)
"""1.5 * 2**23: its bits, and its value."""
SMALL = gl.constexpr(0x2B400000)
SMALL_CODE = gl.constexpr(2.0**-85)
LEAST_FLOAT = gl.constexpr(2.0**-149)
"""Bits of 1.5 * 2**-41, whose last bit is 2**-64; that times the second is the third, whose bits are 1."""
UNSEEN_CODES = gl.constexpr(-1270874112)
"""Scores of keys that are not seen, of int8. With MAGIC they have the bits of minus infinity, with SMALL
those of -2**64, which is 2**128 units of its last bit."""
P_BITS = gl.constexpr(8.0)
"""Weights are at most 2**8: the largest power of two in FP8's 448."""
LINE_CODE = gl.constexpr(8.0 * 7.0 - 0.46)
LINE_SHIFT = gl.constexpr((8.0 * 7.0 - 0.46) / 128.0)
"""The code of 2**0, less 8 times what lines are above the powers on average, 0.0576 octaves; and in 128s."""


@gluon.jit
def weights_of(scores, scale, peak, ELEMENT: gl.constexpr, SUMS: gl.constexpr, LINES: gl.constexpr):
    """2**8 times the weights of a block as the left factor of a product whose sums lie as SUMS says."""
    ROWS: gl.constexpr = scores.shape[0]
    COLUMNS: gl.constexpr = scores.shape[1]
    WIDTH: gl.constexpr = 32 // ELEMENT.primitive_bitwidth
    LEFT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=SUMS, k_width=WIDTH)
    x = scores
    shift = P_BITS - peak
    IS_PACKED: gl.constexpr = scores.dtype == gl.int32 and LINES == 2
    if IS_PACKED:
        x = (scores + SMALL).to(gl.float32, bitcast=True)
    elif scores.dtype == gl.int32:
        x = (scores + MAGIC).to(gl.float32, bitcast=True)
        shift = shift - MAGIC_FLOAT * scale
    if ELEMENT.primitive_bitwidth == 8:
        x = x.reshape([ROWS, COLUMNS // 16, 2, 4, 2]).permute([0, 1, 3, 2, 4]).reshape([ROWS, COLUMNS])
    x = gl.convert_layout(x, LEFT, assert_trivial=True)
    ROW: gl.constexpr = gl.SliceLayout(1, LEFT)
    scale = gl.convert_layout(scale, ROW, assert_trivial=True)[:, None]
    shift = gl.convert_layout(shift, ROW, assert_trivial=True)[:, None]
    if IS_PACKED:
        weights = packed_codes_of(x, scale, shift)
    elif ELEMENT.primitive_bitwidth == 8:
        weights = codes_of(x, scale, shift, LINES)
    else:
        weights = exp2(gl.fma(x, scale, shift)).to(ELEMENT)
    return weights


@gluon.jit
def codes_of(x, scale, shift, LINES: gl.constexpr):
    """FP8 codes of 2**(x * scale + shift)."""
    if LINES == 0:
        y = gl.inline_asm_elementwise(
            codes_text(0),
            "=r,=r" + ",f" * 24,
            [x, scale, shift],
            dtype=gl.float8e4nv,
            is_pure=True,
            pack=8,
        )
    else:
        y = gl.inline_asm_elementwise(
            codes_text(LINES),
            "=r,=r" + ",f" * 40,
            [x, scale, shift, scale * 0.0625, shift * 0.0625 + LINE_SHIFT],
            dtype=gl.float8e4nv,
            is_pure=True,
            pack=8,
        )
    return y


@gluon.jit
def packed_codes_of(x, scale, shift):
    """FP8 codes of 2**(n * scale + shift) as lines, of n that came as x = (1.5 * 2**23 + n) * 2**-64."""
    unit, least = packed_factors(scale, shift)
    return gl.inline_asm_elementwise(
        packed_text(), "=r,=r" + ",f" * 24, [x, unit, least], dtype=gl.float8e4nv, is_pure=True, pack=8
    )


@gluon.jit
def packed_factors(scale, shift):
    """What x is multiplied by and what is added, so that the bits of the result are the code.

    What is added is a whole number of codes; the rest of it, times the 1.5 * 2**23 in x, comes from the
    factor. Both are off by as much as 6 codes where a sum of 1 is 8 codes, an octave: less 8 codes there, no
    weight gets beyond the code of 2**8. A sum of 1 is 2**-8 octaves where scores reach 10,000 of them.
    """
    code = scale * 8.0
    first = shift * 8.0 + LINE_CODE - code
    given = gl.fma(code, -MAGIC_FLOAT, first)
    whole = (given + MAGIC_FLOAT) - MAGIC_FLOAT
    return gl.fma(given - whole, 1.0 / MAGIC_FLOAT, code) * SMALL_CODE, whole * LEAST_FLOAT


@gluon.constexpr_function
def packed_text():
    """PTX for two words of 4 codes each: 8 products with a sum, packed; negative ones are 0."""
    text = ["{ .reg .f32 x<4>; .reg .b32 n<4>; .reg .b32 h;"]
    for word in range(2):
        for i in range(4):
            at = 2 + 4 * word + i
            text += [f"fma.rn.f32 x{i}, ${at}, ${at + 8}, ${at + 16};", f"mov.b32 n{i}, x{i};"]
        text += ["cvt.pack.sat.u8.s32.b32 h, n3, n2, 0;", f"cvt.pack.sat.u8.s32.b32 ${word}, n1, n0, h;"]
    return "\n".join([*text, "}"])


@gluon.constexpr_function
def codes_text(lines):
    """PTX for two words of 4 codes each, the first `lines` of them straight lines.

    Operands: the words, then 8 of each argument. Numbers are hexadecimal bits: 128, and 1.5 * 2**23, which
    leaves a number rounded in the lowest byte; `sat` cuts off at 0 and 1.
    """
    text = ["{ .reg .f32 x<4>; .reg .b16 h<2>; .reg .b32 n<4>;"]
    for word in range(2):
        for i in range(4):
            at = 4 * word + i
            if word < lines:
                text += [
                    f"fma.rn.sat.f32 x{i}, ${2 + at}, ${26 + at}, ${34 + at};",
                    f"fma.rn.f32 x{i}, x{i}, 0f43000000, 0f4B400000;",
                    f"mov.b32 n{i}, x{i};",
                ]
            else:
                text += [
                    f"fma.rn.f32 x{i}, ${2 + at}, ${10 + at}, ${18 + at};",
                    f"ex2.approx.ftz.f32 x{i}, x{i};",
                ]
        if word < lines:
            text += [
                "prmt.b32 n0, n0, n1, 0x0040;",
                "prmt.b32 n2, n2, n3, 0x0040;",
                f"prmt.b32 ${word}, n0, n2, 0x5410;",
            ]
        else:
            text += [
                "cvt.rn.satfinite.e4m3x2.f32 h0, x1, x0;",
                "cvt.rn.satfinite.e4m3x2.f32 h1, x3, x2;",
                f"mov.b32 ${word}, {{h0, h1}};",
            ]
    return "\n".join([*text, "}"])
