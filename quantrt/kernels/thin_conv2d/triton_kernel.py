# SPDX-License-Identifier: Apache-2.0
"""y[i, p, q, n] = epilogue(sum over r, s, c of x[i, p * SH + r, q * SW + s, c] * w[n, r, s, c]), few c.

x has four channels and its borders already, so that nothing of it is masked: the taps of one line of a window
are neighbours in memory, S * 4 elements, and of a window as many such lines as it is high. Weights stay in
shared memory while a program walks over tiles of TILE_P x TILE_Q output pixels; the windows of the next tiles
are copied while the epilogue of one runs. int8 codes accumulate in int32, exactly; floats in float32.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.gemm.triton_kernel import factor
from quantrt.kernels.jit.epilogue import registers_of
from quantrt.kernels.jit.expression import evaluate, stored
from quantrt.kernels.jit.functions import INTERPRETED

__all__ = ["add_borders", "thin_conv2d"]

PIXEL = tl.constexpr(4)
"""Elements of one pixel of x."""


@triton.jit
def thin_conv2d(
    x_ptr,
    w_ptr,
    pointers,
    slots,
    images,
    P,
    Q,
    lines,
    line_units,
    N: tl.constexpr,
    S: tl.constexpr,
    TERMS: tl.constexpr,
    STRIDES: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    LINE_UNIT: tl.constexpr,
    WIDTH: tl.constexpr,
    LINES: tl.constexpr,
    TILE_P: tl.constexpr,
    TILE_Q: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program: every tile whose number is its own plus a multiple of the programs in its column.

    Args:
        lines, line_units: height of x with its borders; elements of a line in units of LINE_UNIT.
        WIDTH: elements of a line of a window, S * 4 and what is missing to a power of two; w is zero there.
        LINES: (first, count) of the lines of a window that are multiplied at once; w has all of them.
    """
    KIND: tl.constexpr = tl.int32 if x_ptr.dtype.element_ty == tl.int8 else tl.float32
    BLOCK_M: tl.constexpr = TILE_P * TILE_Q
    pitch = line_units * LINE_UNIT
    tiles_p = tl.cdiv(P, TILE_P)
    tiles_q = tl.cdiv(Q, TILE_Q)
    column = tl.program_id(1) * BLOCK_N
    offs_m = tl.arange(0, BLOCK_M)
    line = offs_m // TILE_Q
    place = offs_m % TILE_Q
    windows = line * (STRIDES[0] * pitch) + place * (STRIDES[1] * PIXEL)
    w = _weights(w_ptr, column, N, WIDTH, LINES, BLOCK_N)

    turns = tl.cdiv(images * tiles_p * tiles_q - tl.program_id(0), tl.num_programs(0))
    if INTERPRETED:
        turns = turns.handle.data[0]  # it counts with numbers of Python's
    for turn in tl.range(0, turns):
        tile = tl.program_id(0) + turn * tl.num_programs(0)
        p = tile // tiles_q % tiles_p * TILE_P
        q = tile % tiles_q * TILE_Q
        image = (tile // tiles_q // tiles_p).to(tl.int64)
        x_tile = x_ptr + ((image * lines + p * STRIDES[0]) * pitch + q * (STRIDES[1] * PIXEL))
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=KIND)
        for i in tl.static_range(len(LINES)):
            offs_k = tl.arange(0, LINES[i][1] * WIDTH)
            taps = (LINES[i][0] + offs_k // WIDTH) * pitch + offs_k % WIDTH
            x_ptrs = x_tile + (windows[:, None] + taps[None, :])
            if KIND == tl.int32 or WIDTH == S * PIXEL:
                x = tl.load(x_ptrs)  # what is not of the window meets weights of zero
            else:
                # Zero times infinity is not zero.
                x = tl.load(x_ptrs, mask=(offs_k % WIDTH < S * PIXEL)[None, :], other=0)
            accumulator = tl.dot(factor(x), factor(w[i]), accumulator, out_dtype=KIND)
        _store(
            accumulator,
            pointers,
            slots,
            (image * P + p) * Q + q,
            line * Q + place,
            (line < P - p) & (place < Q - q),
            column,
            N,
            TERMS,
            KINDS,
            PROGRAM,
            OUTPUTS,
            BLOCK_N,
        )


@triton.jit
def _weights(
    w_ptr,
    column,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
    LINES: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Blocks [LINES[i][1] * WIDTH, BLOCK_N] of w [N, lines, WIDTH]."""
    DEPTH: tl.constexpr = (LINES[len(LINES) - 1][0] + LINES[len(LINES) - 1][1]) * WIDTH
    rows = column + tl.arange(0, BLOCK_N)
    if N % BLOCK_N != 0:
        rows = tl.minimum(rows, N - 1)
    blocks = ()
    for i in tl.static_range(len(LINES)):
        offs_k = LINES[i][0] * WIDTH + tl.arange(0, LINES[i][1] * WIDTH)
        blocks = blocks + (tl.load(w_ptr + rows[None, :] * DEPTH + offs_k[:, None]),)
    return blocks


@triton.jit
def _store(
    accumulator,
    pointers,
    slots,
    first,
    rows,
    mask_m,
    column,
    N: tl.constexpr,
    TERMS: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The epilogue of a tile of pixels `first + rows`."""
    offs_n = tl.arange(0, BLOCK_N)
    mask_n = offs_n < N - column
    tile = first * N + column
    offsets = rows[:, None] * N + offs_n[None, :]
    mask = mask_m[:, None]
    if N % BLOCK_N != 0:
        mask = mask & mask_n[None, :]
    operands = ()
    for i in tl.static_range(len(KINDS)):
        if KINDS[i] == "tensor":
            operands = operands + (tl.load(slots[i] + tile + offsets, mask=mask, other=0),)
        elif KINDS[i] == "scalar":
            operands = operands + (slots[i],)
        else:
            value = tl.load(slots[i] + column + offs_n, mask=mask_n, other=0)
            operands = operands + (value[None, :],)
    results = evaluate(PROGRAM, registers_of(accumulator, operands, TERMS, PROGRAM))
    for i in tl.static_range(len(OUTPUTS)):
        y_ptr = pointers[i]
        y = stored(PROGRAM, OUTPUTS[i], results, y_ptr.dtype.element_ty)
        tl.store(y_ptr + tile + offsets, tl.broadcast_to(y, accumulator.shape), mask=mask)


@triton.jit
def add_borders(
    x_ptr,
    y_ptr,
    H,
    W,
    lines,
    line_units,
    stride_xn,
    stride_xc,
    stride_xh,
    stride_xw,
    C: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    PAD_CODE: tl.constexpr,
    LINE_UNIT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y[image, TOP + h, LEFT + w, c] = x[image, c, h, w], PAD_CODE elsewhere; y has four channels, innermost.

    One program copies BLOCK pixels of a line.
    """
    image = (tl.program_id(0) // lines).to(tl.int64)
    h = tl.program_id(0) % lines - TOP
    pitch = line_units * LINE_UNIT
    offs_w = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    w = offs_w - LEFT
    c = tl.arange(0, PIXEL)
    inside = (w >= 0) & (w < W) & (h >= 0) & (h < H)
    x_line = x_ptr + image * stride_xn + h.to(tl.int64) * stride_xh
    x_ptrs = x_line + w.to(tl.int64)[:, None] * stride_xw + c[None, :].to(tl.int64) * stride_xc
    x = tl.load(x_ptrs, mask=inside[:, None] & (c < C)[None, :], other=PAD_CODE)
    y_line = y_ptr + tl.program_id(0).to(tl.int64) * pitch
    tl.store(y_line + offs_w[:, None] * PIXEL + c[None, :], x, mask=(offs_w < pitch // PIXEL)[:, None])
