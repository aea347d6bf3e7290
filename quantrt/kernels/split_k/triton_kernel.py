# SPDX-License-Identifier: Apache-2.0
"""parts[split, m, n] = the split-th part of sum over k of x[m, k] * w[n, k]; y = epilogue(sum over parts).

Where tiles are too few for a device, several programs add up one tile, each its share of k, and a second
kernel adds the shares, in their order: a result never depends on which came first. Parts are int32 for codes,
so that their sum is exact, else float32.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.conv2d.triton_kernel import first_pixel
from quantrt.kernels.conv2d.triton_kernel import multiply as multiply_windows
from quantrt.kernels.gemm.triton_kernel import multiply, tile_of
from quantrt.kernels.jit.epilogue import store_tile

__all__ = ["add_parts", "conv2d_parts", "gemm_parts"]


@triton.jit
def gemm_parts(
    x_ptr,
    w_ptr,
    parts_ptr,
    M,
    stride_xm,
    STRIDE_UNIT: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    pid_m, pid_n = tile_of(tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    split = tl.program_id(1)
    row = pid_m.to(tl.int64) * BLOCK_M
    column = pid_n * BLOCK_N
    offs_n = tl.arange(0, BLOCK_N)

    # Rows beyond the last read the last one again: cheaper than masks, and they are never stored.
    rows_x = tl.minimum(tl.arange(0, BLOCK_M), M - pid_m * BLOCK_M - 1)
    rows_w = offs_n
    if N % BLOCK_N != 0:
        rows_w = tl.minimum(offs_n, N - column - 1)
    stride = stride_xm * STRIDE_UNIT
    PART: tl.constexpr = K // SPLITS
    x_ptrs = x_ptr + row * stride + split * PART + rows_x[:, None] * stride
    w_ptrs = w_ptr + column.to(tl.int64) * K + split * PART + rows_w[None, :] * K
    accumulator = multiply(x_ptrs, w_ptrs, PART, "ieee", BLOCK_M, BLOCK_N, BLOCK_K)
    _store_part(accumulator, parts_ptr, split, row, column, M, N, BLOCK_M, BLOCK_N)


@triton.jit
def conv2d_parts(
    x_ptr,
    w_ptr,
    parts_ptr,
    M,
    H,
    W,
    P,
    Q,
    N: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    C: tl.constexpr,
    STRIDES: tl.constexpr,
    PADS: tl.constexpr,
    PAD_CODE: tl.constexpr,
    DILATIONS: tl.constexpr,
    X_PITCH: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tiles_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    row = tl.program_id(0) // tiles_n * BLOCK_M
    column = tl.program_id(0) % tiles_n * BLOCK_N
    split = tl.program_id(1)
    rows = row + tl.minimum(tl.arange(0, BLOCK_M), M - row - 1)
    pixel, y_in, x_in = first_pixel(rows, H, W, P, Q, R, S, STRIDES, PADS)
    rows_w = tl.arange(0, BLOCK_N)
    if N % BLOCK_N != 0:
        rows_w = tl.minimum(rows_w, N - column - 1)
    x_ptrs = x_ptr + pixel * X_PITCH
    w_ptrs = w_ptr + column.to(tl.int64) * (R * S * C) + rows_w * (R * S * C)
    accumulator = multiply_windows(
        x_ptrs,
        w_ptrs,
        y_in,
        x_in,
        H,
        W,
        split,
        R,
        S,
        C,
        X_PITCH,
        SPLITS,
        PADS,
        PAD_CODE,
        DILATIONS,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
    )
    _store_part(accumulator, parts_ptr, split, row, column, M, N, BLOCK_M, BLOCK_N)


@triton.jit
def _store_part(
    accumulator,
    parts_ptr,
    split,
    row,
    column,
    M,
    N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m < M - row)[:, None]
    if N % BLOCK_N != 0:
        mask = mask & (offs_n < N - column)[None, :]
    tile = (split.to(tl.int64) * M + row) * N + column
    tl.store(parts_ptr + tile + (offs_m[:, None] * N + offs_n[None, :]), accumulator, mask=mask)


@triton.jit
def add_parts(
    parts_ptr,
    pointers,
    slots,
    M,
    N: tl.constexpr,
    TERMS: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PITCHES: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    tiles_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    row = tl.program_id(0) // tiles_n * BLOCK_M
    column = tl.program_id(0) % tiles_n * BLOCK_N
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m < M - row)[:, None]
    if N % BLOCK_N != 0:
        mask = mask & (offs_n < N - column)[None, :]
    first = parts_ptr + row.to(tl.int64) * N + column
    offsets = offs_m[:, None] * N + offs_n[None, :]
    total = tl.load(first + offsets, mask=mask, other=0)
    for split in tl.static_range(1, SPLITS):
        total += tl.load(first + M.to(tl.int64) * (split * N) + offsets, mask=mask, other=0)
    formula: tl.constexpr = (KINDS, PROGRAM, OUTPUTS, PITCHES)
    store_tile(total, pointers, slots, (row, column, M), N, TERMS, formula, N % BLOCK_N == 0)
