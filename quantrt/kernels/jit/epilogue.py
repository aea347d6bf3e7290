# SPDX-License-Identifier: Apache-2.0
"""From the sums of one tile [BLOCK_M, BLOCK_N] of a row-major matrix to what is stored of it.

place: (row, column, M): the tile's first row and column, and rows of the matrix, which has N columns.
formula: (KINDS, PROGRAM, OUTPUTS, PITCHES); of PITCHES see `pitch_of`.
IS_WHOLE: no tile has columns beyond N.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.codes import ROUNDER
from quantrt.kernels.jit.expression import evaluate, stored
from quantrt.kernels.jit.zero_points import zero_point_of

__all__ = [
    "load_operands",
    "pitch_of",
    "registers_of",
    "store_as_is",
    "store_loaded",
    "store_tile",
    "sums_to_float",
]

ROUNDER_BITS = tl.constexpr(0x4B400000)
"""Bits of ROUNDER, 1.5 * 2**23; plus an integer below 2**22 in size, those of ROUNDER plus that integer."""
SMALL_TERMS = tl.constexpr((1 << 22) // (128 * 128))
"""Up to so many products of two codes sum to less than 2**22."""


@triton.jit
def store_tile(
    accumulator,
    pointers,
    slots,
    place,
    N: tl.constexpr,
    TERMS: tl.constexpr,
    formula: tl.constexpr,
    IS_WHOLE: tl.constexpr,
):
    """The epilogue of one tile, or of a part of one.

    Args:
        TERMS: products in each sum.
    """
    BLOCK_M: tl.constexpr = accumulator.shape[0]
    BLOCK_N: tl.constexpr = accumulator.shape[1]
    operands = load_operands(slots, place, N, formula, IS_WHOLE, BLOCK_M, BLOCK_N)
    store_loaded(accumulator, operands, pointers, place, N, TERMS, formula, IS_WHOLE)


@triton.jit
def store_as_is(values, pointers, place, N: tl.constexpr, formula: tl.constexpr, IS_WHOLE: tl.constexpr):
    """A tile without an epilogue: codes that stay what they are need not become floats for it."""
    row, column, M = place
    KINDS: tl.constexpr = formula[0]
    offs_m = tl.arange(0, values.shape[0])
    offs_n = tl.arange(0, values.shape[1])
    mask = (offs_m < M - row)[:, None]
    if not IS_WHOLE:
        mask = mask & (offs_n < N - column)[None, :]
    for i in tl.static_range(len(formula[2])):
        y_ptr = pointers[i]
        tile = row.to(tl.int64) * pitch_of(formula[3], len(KINDS) + i, N) + column
        rows = offs_m[:, None] * pitch_of(formula[3], len(KINDS) + i, N)
        y_ptrs = y_ptr + tile + (rows + offs_n[None, :])
        tl.store(y_ptrs, values.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def load_operands(
    slots,
    place,
    N: tl.constexpr,
    formula: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """What the epilogue of a tile reads beside the sums: blocks, rows and numbers."""
    row, column, M = place
    KINDS: tl.constexpr = formula[0]
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask_n = offs_n < N - column
    mask = (offs_m < M - row)[:, None]
    if not IS_WHOLE:
        mask = mask & mask_n[None, :]
    operands = ()
    for i in tl.static_range(len(KINDS)):
        if KINDS[i] == "tensor":
            tile = row.to(tl.int64) * pitch_of(formula[3], i, N) + column
            offsets = offs_m[:, None] * pitch_of(formula[3], i, N) + offs_n[None, :]
            operands = operands + (tl.load(slots[i] + tile + offsets, mask=mask, other=0.0),)
        elif KINDS[i] == "row":
            value = tl.load(slots[i] + row + offs_m, mask=offs_m < M - row, other=0.0)
            operands = operands + (value[:, None],)
        elif KINDS[i] == "scalar":
            operands = operands + (slots[i],)
        else:
            value = tl.load(slots[i] + column + offs_n, mask=mask_n, other=0)
            operands = operands + (value[None, :],)
    return operands


@triton.jit
def store_loaded(
    accumulator,
    operands,
    pointers,
    place,
    N: tl.constexpr,
    TERMS: tl.constexpr,
    formula: tl.constexpr,
    IS_WHOLE: tl.constexpr,
):
    """The rest of `store_tile`, behind `load_operands`."""
    row, column, M = place
    KINDS: tl.constexpr = formula[0]
    PROGRAM: tl.constexpr = formula[1]
    OUTPUTS: tl.constexpr = formula[2]
    offs_m = tl.arange(0, accumulator.shape[0])
    offs_n = tl.arange(0, accumulator.shape[1])
    mask = (offs_m < M - row)[:, None]
    if not IS_WHOLE:
        mask = mask & (offs_n < N - column)[None, :]
    results = evaluate(PROGRAM, registers_of(accumulator, operands, TERMS, PROGRAM))
    for i in tl.static_range(len(OUTPUTS)):
        y_ptr = pointers[i]
        y = stored(PROGRAM, OUTPUTS[i], results, y_ptr.dtype.element_ty)
        tile = row.to(tl.int64) * pitch_of(formula[3], len(KINDS) + i, N) + column
        offsets = offs_m[:, None] * pitch_of(formula[3], len(KINDS) + i, N) + offs_n[None, :]
        tl.store(y_ptr + tile + offsets, tl.broadcast_to(y, accumulator.shape), mask=mask)


@triton.constexpr_function
def pitch_of(pitches, number, columns):
    """Elements from one row to the next of an operand, or behind all operands of an output.

    Args:
        pitches: of all of them, 0 where rows have no gaps between; empty, or None, where none has.
    """
    return (pitches[number] or columns) if pitches else columns


@triton.jit
def registers_of(accumulator, operands, TERMS: tl.constexpr, PROGRAM: tl.constexpr):
    """The accumulator as float32, then the operands.

    What the program takes off small sums of codes because of their zero point takes ROUNDER with it: whole
    numbers below 2**24, so that nothing is rounded.
    """
    zero: tl.constexpr = zero_point_of(PROGRAM, 0)
    if zero < 1 or accumulator.dtype != tl.int32 or TERMS > SMALL_TERMS:
        registers = (sums_to_float(accumulator, TERMS),) + operands
    else:
        registers = ((accumulator + ROUNDER_BITS).to(tl.float32, bitcast=True),)
        for i in tl.static_range(len(operands)):
            if i + 1 == zero:
                registers = registers + (operands[i] + ROUNDER,)
            else:
                registers = registers + (operands[i],)
    return registers


@triton.jit
def sums_to_float(x, TERMS: tl.constexpr):
    """The accumulator as float32.

    Integers are converted at an eighth of the rate of additions; small ones are written into the digits of a
    float instead.
    """
    if x.dtype == tl.int32 and TERMS <= SMALL_TERMS:
        y = (x + ROUNDER_BITS).to(tl.float32, bitcast=True) - ROUNDER
    else:
        y = x.to(tl.float32)
    return y
