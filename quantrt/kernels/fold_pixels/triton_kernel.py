# SPDX-License-Identifier: Apache-2.0
"""Squares of neighbouring pixels as one pixel with more channels; see spec.py."""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.expression import evaluate, stored

__all__ = ["fold_pixels"]


@triton.jit
def fold_pixels(
    x_ptr,
    y_ptr,
    slots,
    M,
    U,
    V,
    H,
    W,
    stride_xn,
    stride_xc,
    stride_xh,
    stride_xw,
    C: tl.constexpr,
    STEP: tl.constexpr,
    TAPS: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    PAD_CODE: tl.constexpr,
    WIDTH: tl.constexpr,
    ARGUMENTS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y[image, u, v, (b, d, c)], M folded pixels in U lines of V: BLOCK of them a program.

    A border is PAD_CODE, and what is behind the channels 0. TAPS is of the convolution that follows. With
    PROGRAM the pixels go through an expression first, whose other operands are ARGUMENTS numbers.
    """
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, WIDTH)
    line = rows // V
    h = (line % U * STEP - TOP)[:, None] + (k // (STEP * C))[None, :]
    w = (rows % V * STEP - LEFT)[:, None] + (k % (STEP * C) // C)[None, :]
    image = (line // U).to(tl.int64)
    inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
    there = (rows < M)[:, None] & (k < STEP * STEP * C)[None, :]
    x_ptrs = (
        x_ptr + (image * stride_xn)[:, None] + (k % C * stride_xc)[None, :] + h * stride_xh + w * stride_xw
    )
    if x_ptr.dtype == y_ptr.dtype:
        x = tl.load(x_ptrs, mask=there & inside, other=PAD_CODE)
    else:
        registers = (tl.load(x_ptrs, mask=there & inside, other=0).to(tl.float32),)
        for i in tl.static_range(ARGUMENTS):
            registers = registers + (slots[i],)
        x = stored(PROGRAM, OUTPUT, evaluate(PROGRAM, registers), y_ptr.dtype.element_ty)
        x = tl.where(inside, x, tl.full((BLOCK, WIDTH), PAD_CODE, y_ptr.dtype.element_ty))
    x = tl.where(there, x, tl.zeros_like(x))
    tl.store(y_ptr + rows.to(tl.int64)[:, None] * WIDTH + k[None, :], x, mask=(rows < M)[:, None])
