# SPDX-License-Identifier: Apache-2.0
"""Copies of images with borders of one code, channels last."""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.functions import left_by_masks

__all__ = ["add_borders"]


@triton.jit
def add_borders(
    x_ptr,
    y_ptr,
    M,
    H,
    W,
    C: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    BOTTOM: tl.constexpr,
    RIGHT: tl.constexpr,
    PAD_CODE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """y[image, TOP + h, LEFT + w, c] = x[image, h, w, c], PAD_CODE elsewhere; y has M pixels.

    One program copies BLOCK_M pixels of y, BLOCK_C channels of each.
    """
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    lines = rows // (W + LEFT + RIGHT)
    w = rows % (W + LEFT + RIGHT) - LEFT
    h = lines % (H + TOP + BOTTOM) - TOP
    image = lines // (H + TOP + BOTTOM)
    inside = (w >= 0) & (w < W) & (h >= 0) & (h < H)
    pixel = (image.to(tl.int64) * H + h) * W + w
    mask = (rows < M)[:, None]
    if C % BLOCK_C != 0:
        mask = mask & (c < C)[None, :]
    border = left_by_masks(PAD_CODE, H)
    x = tl.load(x_ptr + pixel[:, None] * C + c[None, :], mask=mask & inside[:, None], other=border)
    tl.store(y_ptr + rows.to(tl.int64)[:, None] * C + c[None, :], x, mask=mask)
