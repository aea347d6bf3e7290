# SPDX-License-Identifier: Apache-2.0
"""y[m, n] = epilogue(sum over r, s of x[window(m, r, s), n] * w[r, s, n]): every channel by itself.

Row m is the output pixel (image, p, q), column n the channel. x and y are channels-last, w is [R, S, N], so
that everything is contiguous along channels. Taps are unrolled; there are no tensor cores in it. int8 codes
accumulate in int32, exactly; floats in float32, where products of two float16 are exact too.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.conv2d.triton_kernel import first_pixel, has_padding
from quantrt.kernels.jit.epilogue import store_tile
from quantrt.kernels.jit.functions import left_by_masks


@triton.jit
def depthwise(
    x_ptr,
    w_ptr,
    pointers,
    slots,
    M,
    H,
    W,
    P,
    Q,
    N: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    STRIDES: tl.constexpr,
    PADS: tl.constexpr,
    PAD_CODE: tl.constexpr,
    DILATIONS: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    KIND: tl.constexpr = tl.int32 if x_ptr.dtype.element_ty == tl.int8 else tl.float32
    IS_WHOLE: tl.constexpr = N % BLOCK_N == 0
    tiles_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    pid = tl.program_id(0)
    row = (pid // tiles_n) * BLOCK_M
    column = (pid % tiles_n) * BLOCK_N
    offs_m = tl.arange(0, BLOCK_M)
    columns = column + tl.arange(0, BLOCK_N)
    mask_n = columns < N

    # Rows beyond the last read the last one again: they are never stored.
    pixel, y_in, x_in = first_pixel(row + tl.minimum(offs_m, M - row - 1), H, W, P, Q, R, S, STRIDES, PADS)
    x_tile = x_ptr + pixel[:, None] * N + columns[None, :]
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=KIND)
    padding = left_by_masks(PAD_CODE, H)
    for tap in tl.static_range(R * S):
        dy = tap // S * DILATIONS[0]
        dx = tap % S * DILATIONS[1]
        mask = mask_n[None, :]
        if has_padding(PADS):
            y = y_in + dy
            x = x_in + dx
            inside = (y >= 0) & (y < H) & (x >= 0) & (x < W)
            mask = inside[:, None] if IS_WHOLE else mask & inside[:, None]
        value = tl.load(x_tile + (dy * W + dx) * N, mask=mask, other=padding).to(KIND)
        weight = tl.load(w_ptr + tap * N + columns, mask=mask_n, other=0).to(KIND)
        if KIND == tl.int32:
            accumulator += value * weight[None, :]
        else:
            accumulator = tl.fma(value, tl.broadcast_to(weight[None, :], (BLOCK_M, BLOCK_N)), accumulator)

    formula: tl.constexpr = (KINDS, PROGRAM, OUTPUTS, None)
    store_tile(accumulator, pointers, slots, (row, column, M), N, R * S, formula, IS_WHOLE)
