# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(x[M, K] @ w[N, K]^T), both operands contiguous along K.

int8 codes accumulate in int32, exactly; floats in float32, FP8 on Hopper in less (see spec.py). The epilogue
reads the accumulator as float32 and runs in registers. One program computes one tile; M is known at launch, N
and K when compiled. Of a gate, w has two rows for every column of y, side by side. HAS_LIVE: of the rows only
the first ones are computed, as many as live_ptr says.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.codes import to_float
from quantrt.kernels.jit.epilogue import load_operands, store_loaded, store_tile, sums_to_float
from quantrt.kernels.jit.functions import INTERPRETED

__all__ = ["factor", "gemm", "multiply", "tile_of"]

PROMOTED_TERMS = tl.constexpr(128)
"""Products of FP8 whose sum is left to Hopper's tensor cores."""


@triton.jit
def gemm(
    x_ptr,
    w_ptr,
    pointers,
    slots,
    M,
    stride_xm,
    live_ptr,
    HAS_LIVE: tl.constexpr,
    STRIDE_UNIT: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GATED: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PRECISION: tl.constexpr,
    PROMOTES: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    COLUMNS: tl.constexpr = 2 * N if GATED else N
    if HAS_LIVE:
        M = tl.minimum(M, tl.load(live_ptr))
        if tl.program_id(0) >= tl.cdiv(M, BLOCK_M) * tl.cdiv(COLUMNS, BLOCK_N):
            return
    pid_m, pid_n = tile_of(tl.cdiv(M, BLOCK_M), tl.cdiv(COLUMNS, BLOCK_N), GROUP_M)
    # Inside a tile 32 bits are enough; where the tile begins may be beyond them.
    row = pid_m.to(tl.int64) * BLOCK_M
    column = pid_n * BLOCK_N
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)

    # Rows beyond the last read the last one again: cheaper than masks, and they are never stored.
    rows_x = tl.minimum(offs_m, M - pid_m * BLOCK_M - 1)
    rows_w = offs_n
    if COLUMNS % BLOCK_N != 0:
        rows_w = tl.minimum(offs_n, COLUMNS - column - 1)
    stride = stride_xm * STRIDE_UNIT
    x_ptrs = x_ptr + row * stride + rows_x[:, None] * stride
    w_ptrs = w_ptr + column.to(tl.int64) * K + rows_w[None, :] * K
    accumulator = multiply(x_ptrs, w_ptrs, K, PRECISION, BLOCK_M, BLOCK_N, BLOCK_K, PROMOTES)

    # A long epilogue on a part of the columns at a time, for it has not the registers for all.
    PART: tl.constexpr = BLOCK_N // PARTS
    parts = (accumulator,)
    if PARTS >= 2:
        parts = _halves(accumulator)
    if PARTS == 4:
        parts = _halves(parts[0]) + _halves(parts[1])
    formula: tl.constexpr = (KINDS, PROGRAM, OUTPUTS, None)
    for i in tl.static_range(PARTS):
        if GATED:
            place = (row, (column + i * PART) // 2, M)
            store_gate(parts[i], pointers, slots, place, N, K, formula, COLUMNS % BLOCK_N == 0)
        else:
            place = (row, column + i * PART, M)
            store_tile(parts[i], pointers, slots, place, N, K, formula, N % BLOCK_N == 0)


@triton.jit
def store_gate(
    accumulator,
    pointers,
    slots,
    place,
    N: tl.constexpr,
    TERMS: tl.constexpr,
    formula: tl.constexpr,
    IS_WHOLE: tl.constexpr,
):
    """The epilogue of a tile [BLOCK_M, 2 BLOCK_N] with columns of the left and the right half in turns."""
    BLOCK_M: tl.constexpr = accumulator.shape[0]
    BLOCK_N: tl.constexpr = accumulator.shape[1] // 2
    left, right = tl.split(tl.reshape(accumulator, (BLOCK_M, BLOCK_N, 2)))
    operands = load_operands(slots, place, N, formula, IS_WHOLE, BLOCK_M, BLOCK_N)
    operands = (sums_to_float(right, TERMS),) + operands
    store_loaded(left, operands, pointers, place, N, TERMS, formula, IS_WHOLE)


@triton.jit
def _halves(block):
    """The left and the right half of a block's columns."""
    halves = tl.reshape(block, (block.shape[0], 2, block.shape[1] // 2))
    return tl.split(tl.permute(halves, (0, 2, 1)))


@triton.jit
def tile_of(tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """This program's tile: groups of GROUP_M rows of tiles, so that programs that run together share w."""
    pid = tl.program_id(0)
    group_size = GROUP_M * tiles_n
    first = pid // group_size * GROUP_M
    rows = tl.minimum(tiles_m - first, GROUP_M)
    return first + pid % group_size % rows, pid % group_size // rows


@triton.jit
def factor(x):
    """A block as tl.dot takes it; the interpreter would multiply the bits of bfloat16 as integers."""
    if INTERPRETED and (x.dtype == tl.bfloat16 or x.dtype == tl.float8e4nv):
        y = to_float(x)
    else:
        y = x
    return y


@triton.jit
def multiply(
    x_ptrs,
    w_ptrs,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PROMOTES: tl.constexpr = False,
):
    """The accumulator [BLOCK_M, BLOCK_N], from pointers to the first element of every row.

    Args:
        PROMOTES: float32 sums of FP8 products, whatever the tensor cores keep.
    """
    KIND: tl.constexpr = tl.int32 if x_ptrs.dtype.element_ty == tl.int8 else tl.float32
    offs_k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptrs + offs_k[None, :]
    w_ptrs = w_ptrs + offs_k[:, None]
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=KIND)
    for k in tl.range(0, tl.cdiv(K, BLOCK_K)):
        if K % BLOCK_K == 0:
            x = tl.load(x_ptrs)
            w = tl.load(w_ptrs)
        else:
            mask_k = offs_k < K - k * BLOCK_K
            x = tl.load(x_ptrs, mask=mask_k[None, :], other=0.0)
            w = tl.load(w_ptrs, mask=mask_k[:, None], other=0.0)
        if PROMOTES:
            accumulator = tl.dot(
                factor(x),
                factor(w),
                accumulator,
                max_num_imprecise_acc=min(BLOCK_K, PROMOTED_TERMS),
                out_dtype=KIND,
            )
        else:
            accumulator = tl.dot(factor(x), factor(w), accumulator, input_precision=PRECISION, out_dtype=KIND)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K
    return accumulator
