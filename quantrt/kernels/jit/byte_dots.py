# SPDX-License-Identifier: Apache-2.0
"""Sums of four products of int8 in one instruction (PTX ISA, dp4a).

A word is loaded as four neighbours in memory, and what is added lies a pixel apart: four words of neighbours
become as many of pixels, one for each neighbour.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.functions import INTERPRETED

__all__ = ["add_dots", "words_of"]

TRANSPOSE = tl.constexpr("""
{
.reg .b32 t<4>;
prmt.b32 t0, $4, $5, 0x5140;
prmt.b32 t1, $6, $7, 0x5140;
prmt.b32 t2, $4, $5, 0x7362;
prmt.b32 t3, $6, $7, 0x7362;
prmt.b32 $0, t0, t1, 0x5410;
prmt.b32 $1, t0, t1, 0x7632;
prmt.b32 $2, t2, t3, 0x5410;
prmt.b32 $3, t2, t3, 0x7632;
}
""")


@triton.jit
def words_of(a, b, c, d):
    """Words [n, 4] of the bytes of four blocks of words [n, 1], that of `a` in the lowest digits."""
    if INTERPRETED:
        y = ()
        for i in tl.static_range(4):
            word = _byte(a, i) | (_byte(b, i) << 8) | (_byte(c, i) << 16) | (_byte(d, i) << 24)
            y = y + (word,)
    else:
        y = tl.inline_asm_elementwise(
            TRANSPOSE,
            "=&r,=&r,=&r,=&r,r,r,r,r",
            [a, b, c, d],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
    return tl.reshape(tl.join(tl.join(y[0], y[2]), tl.join(y[1], y[3])), (a.shape[0], 4))


@triton.jit
def add_dots(x, w, sums):
    """sums + the four products of the bytes of x and w, word by word."""
    if INTERPRETED:
        y = sums
        for i in tl.static_range(4):
            y += (x << (24 - 8 * i) >> 24) * (w << (24 - 8 * i) >> 24)
    else:
        y = tl.inline_asm_elementwise(
            "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", [x, w, sums], dtype=tl.int32, is_pure=True, pack=1
        )
    return y


@triton.jit
def _byte(x, i: tl.constexpr):
    return (x >> (8 * i)) & 255
