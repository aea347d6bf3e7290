# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(x[M, K] @ w[N, K]^T), x halves, w codes of 4 bits in groups of inputs.

    y = epilogue(sum over groups g of scale[g, n] * sum over k in g of x[m, k] * (code[n, k] - zero[g, n]))

The inner sums are products of halves, added up in float32: a code less its zero point is a whole number that
halves have. The tensor cores multiply rows of w with rows of x, the transposed product: decoded weights go
into them from registers, and few rows of x waste little. Sixteen bits hold four codes a quarter of a block
apart, so that each digit of them is a block of w beside a block of x as it lies in memory, without shuffles
(`packed` in spec.py). One program computes one tile, or its share of the groups.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.gemm.triton_kernel import store_gate, tile_of
from quantrt.kernels.jit.epilogue import store_tile
from quantrt.kernels.jit.functions import INTERPRETED

__all__ = ["gemm_w4a16"]

DIGITS = tl.constexpr(4)
"""Codes in 16 bits."""
ONE_DIGIT = tl.constexpr(1024.0)
"""The half whose last digit is 1: with a code in its last four digits it is 1024 + code."""


@triton.jit
def gemm_w4a16(
    x_ptr,
    w_ptr,
    scale_ptr,
    zero_ptr,
    pointers,
    slots,
    M,
    stride_xm,
    STRIDE_UNIT: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    GATED: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    COLUMNS: tl.constexpr = 2 * N if GATED else N
    pid_m, pid_n = tile_of(tl.cdiv(M, BLOCK_M), tl.cdiv(COLUMNS, BLOCK_N), GROUP_M)
    row = pid_m.to(tl.int64) * BLOCK_M
    column = pid_n * BLOCK_N

    # Rows of x beyond the last are not read: of one row, all programs would ask for it sixteen times over.
    rows_x = tl.arange(0, BLOCK_M)
    mask_m = (rows_x < M - row)[None, :]
    rows_w = tl.arange(0, BLOCK_N)
    if COLUMNS % BLOCK_N != 0:
        rows_w = tl.minimum(rows_w, COLUMNS - column - 1)
    QUARTER: tl.constexpr = BLOCK_K // DIGITS
    STEPS: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K // SPLITS
    GROUPS: tl.constexpr = BLOCK_K // GROUP
    OF_GROUP: tl.constexpr = DIGITS // GROUPS
    first = tl.program_id(1) * STEPS
    offs_k = tl.arange(0, QUARTER)
    stride = stride_xm * STRIDE_UNIT
    x_ptrs = x_ptr + row * stride + first * BLOCK_K + (rows_x[None, :] * stride + offs_k[:, None])
    w_start = (first.to(tl.int64) * COLUMNS + column) * QUARTER
    w_ptrs = w_ptr + w_start + (rows_w[:, None] * QUARTER + offs_k[None, :])
    groups = first * GROUPS * COLUMNS + column + rows_w
    accumulator = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    zero = tl.full((BLOCK_N,), 8.0, tl.float16)
    for step in tl.range(0, STEPS, num_stages=STAGES):
        digits = _digits(tl.load(w_ptrs))
        for j in tl.static_range(GROUPS):
            if HAS_ZEROS:
                zero = tl.load(zero_ptr + groups + j * COLUMNS)
            sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
            for i in tl.static_range(j * OF_GROUP, (j + 1) * OF_GROUP):
                mask = mask_m
                if K % BLOCK_K != 0:
                    mask = mask_m & (offs_k < K - (first + step) * BLOCK_K - i * QUARTER)[:, None]
                x = tl.load(x_ptrs + i * QUARTER, mask=mask, other=0.0)
                w = _less_zero(digits[i], zero[:, None], i % 2 == 1)
                sums = tl.dot(w, x, sums, out_dtype=tl.float32)
            scale = tl.load(scale_ptr + groups + j * COLUMNS)
            accumulator += sums * scale[:, None]
        x_ptrs += BLOCK_K
        w_ptrs += COLUMNS * QUARTER
        groups += GROUPS * COLUMNS

    share = tl.program_id(1).to(tl.int64) * M * N if SPLITS > 1 else 0
    pointers = (pointers[0] + share, pointers[1], pointers[2], pointers[3])
    tile = tl.trans(accumulator)
    IS_WHOLE: tl.constexpr = COLUMNS % BLOCK_N == 0
    formula: tl.constexpr = (KINDS, PROGRAM, OUTPUTS, None)
    if GATED:
        store_gate(tile, pointers, slots, (row, column // 2, M), N, K, formula, IS_WHOLE)
    else:
        store_tile(tile, pointers, slots, (row, column, M), N, K, formula, IS_WHOLE)


@triton.jit
def _digits(words):
    """Four blocks of codes as halves: 1024 + code, and for every second one 1024 + 16 * code."""
    if INTERPRETED:
        first = (words & 0xF).to(tl.float16) + ONE_DIGIT
        second = (words & 0xF0).to(tl.float16) + ONE_DIGIT
        third = ((words >> 8) & 0xF).to(tl.float16) + ONE_DIGIT
        fourth = ((words >> 8) & 0xF0).to(tl.float16) + ONE_DIGIT
    else:
        first, second, third, fourth = tl.inline_asm_elementwise(
            """
            {
            .reg .b32 upper;
            lop3.b32 $0, $4, 0x000F000F, 0x64006400, 0xEA;
            lop3.b32 $1, $4, 0x00F000F0, 0x64006400, 0xEA;
            shr.b32 upper, $4, 8;
            lop3.b32 $2, upper, 0x000F000F, 0x64006400, 0xEA;
            lop3.b32 $3, upper, 0x00F000F0, 0x64006400, 0xEA;
            }
            """,
            "=r,=r,=r,=r,r",
            [words],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )
    return first, second, third, fourth


@triton.jit
def _less_zero(digit, zero, IS_SHIFTED: tl.constexpr):
    """Codes less their zero point, of what `_digits` makes; nothing is rounded."""
    if IS_SHIFTED:
        y = tl.fma(digit, tl.full((), 0.0625, tl.float16), -(zero + ONE_DIGIT / 16))
    else:
        y = digit - (zero + ONE_DIGIT)
    return y
