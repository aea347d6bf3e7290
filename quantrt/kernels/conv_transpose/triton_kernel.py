# SPDX-License-Identifier: Apache-2.0
"""y[n, h R + r, w S + s, c] = epilogue(x[n, h, w, :] @ w[r, s, c, :]), channels-last.

One program computes a tile of pixels (n, h, w) and of columns (s, c) for one r, and stores each of its rows
where that pixel's row r begins.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.gemm.triton_kernel import multiply
from quantrt.kernels.jit.epilogue import pitch_of, sums_to_float
from quantrt.kernels.jit.expression import evaluate, stored


@triton.jit
def spread(
    x_ptr,
    w_ptr,
    pointers,
    slots,
    M,
    W,
    K: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PITCHES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    N: tl.constexpr = S * C
    tiles_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    pid = tl.program_id(0)
    r = pid % R
    column = (pid // R % tiles_n) * BLOCK_N
    row = pid // (R * tiles_n) * BLOCK_M
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)

    # Rows beyond the last read the last one again: cheaper than masks, and they are never stored.
    rows_x = tl.minimum(offs_m, M - row - 1)
    rows_w = tl.minimum(offs_n, N - column - 1)
    x_ptrs = x_ptr + row.to(tl.int64) * K + rows_x[:, None] * K
    w_ptrs = w_ptr + (r * N + column) * K + rows_w[None, :] * K
    accumulator = multiply(x_ptrs, w_ptrs, K, "ieee", BLOCK_M, BLOCK_N, BLOCK_K)

    pixel = row + offs_m
    line = (pixel // W).to(tl.int64) * R + r
    place = (line * W + pixel % W) * S, column + offs_n
    mask_n = offs_n < N - column
    mask = (pixel < M)[:, None] & mask_n[None, :]
    channel = (column + offs_n) % C
    operands = (sums_to_float(accumulator, K),)
    for i in tl.static_range(len(KINDS)):
        if KINDS[i] == "tensor":
            operands = operands + (
                tl.load(slots[i] + _offsets(place, C, pitch_of(PITCHES, i, C)), mask=mask, other=0.0),
            )
        elif KINDS[i] == "scalar":
            operands = operands + (slots[i],)
        else:
            operands = operands + (tl.load(slots[i] + channel, mask=mask_n, other=0.0)[None, :],)
    results = evaluate(PROGRAM, operands)
    for i in tl.static_range(len(OUTPUTS)):
        y_ptr = pointers[i]
        y = stored(PROGRAM, OUTPUTS[i], results, y_ptr.dtype.element_ty)
        offsets = _offsets(place, C, pitch_of(PITCHES, len(KINDS) + i, C))
        tl.store(y_ptr + offsets, tl.broadcast_to(y, (BLOCK_M, BLOCK_N)), mask=mask)


@triton.jit
def _offsets(place, C: tl.constexpr, PITCH: tl.constexpr):
    """Of elements of a tensor whose pixels are PITCH elements apart.

    Args:
        place: for every row its first pixel, and columns (s, c).
    """
    pixel, columns = place
    if PITCH != C:
        columns = columns + columns // C * (PITCH - C)
    return (pixel * PITCH)[:, None] + columns[None, :]
