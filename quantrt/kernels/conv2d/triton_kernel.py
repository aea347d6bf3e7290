# SPDX-License-Identifier: Apache-2.0
"""y[m, n] = epilogue(sum over r, s, c of x[window(m, r, s), c] * w[n, (r, s, c)]): convolution as a product.

Row m is the output pixel (image, p, q), so that M = images * P * Q; column n is the output channel. x and y
are channels-last, w is [N, R, S, C], so that everything is contiguous along the reduction. Taps (r, s) and
blocks of channels are one loop, which the compiler pipelines as a whole. int8 codes accumulate in int32,
exactly; floats in float32. One program computes one tile; images and their sizes are known at launch, the
rest when compiled. With REPEATS other than (1, 1) it is x with every line and every column repeated so often
that is convolved: pixel (i, j) of that is (i // REPEATS[0], j // REPEATS[1]) of x. With PHASES there are as
many convolutions as their product, one after the other, as kernels/phases says: w is [N, phases, R, S, C],
and M, P and Q are those of one phase.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.gemm.triton_kernel import factor
from quantrt.kernels.jit.epilogue import load_operands, store_loaded, store_tile
from quantrt.kernels.jit.phases import first_row, further_on, has_repeats, moved, steps_of


@triton.jit
def conv2d(
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
    C: tl.constexpr,
    STRIDES: tl.constexpr,
    PADS: tl.constexpr,
    PAD_CODE: tl.constexpr,
    DILATIONS: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    X_PITCH: tl.constexpr,
    PITCHES: tl.constexpr,
    REPEATS: tl.constexpr,
    PHASES: tl.constexpr,
    LEADS: tl.constexpr,
    IS_PACKED: tl.constexpr,
    PARTS: tl.constexpr,
    IS_EARLY: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # Programs that run together share rows of x: weights are few and stay in the L2 cache anyway.
    tiles_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    pid = tl.program_id(0)
    phase, row = first_row(pid // tiles_n, M, BLOCK_M, PHASES)
    column = (pid % tiles_n) * BLOCK_N
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)

    # Rows beyond the last read the last one again: cheaper than masks, and they are never stored.
    rows_x = row + tl.minimum(offs_m, M - row - 1)
    pixel, y_in, x_in = first_pixel(rows_x, H, W, P, Q, R, S, STRIDES, PADS, REPEATS)
    rows_w = offs_n
    if N % BLOCK_N != 0:
        rows_w = tl.minimum(offs_n, N - column - 1)
    x_ptrs = x_ptr + pixel * X_PITCH
    W_ROW: tl.constexpr = PHASES[0] * PHASES[1] * R * S * C
    w_ptrs = w_ptr + column.to(tl.int64) * W_ROW + rows_w * W_ROW
    if has_repeats(PHASES):
        down, right = steps_of(phase, PHASES, LEADS)
        y_in += down
        x_in += right
        x_ptrs += (down * W + right) * X_PITCH
        w_ptrs += phase * (R * S * C)
        further = further_on(row + offs_m, phase, Q, PHASES)
        pointers = moved(pointers, further, OUTPUTS, len(KINDS), PITCHES, N)
        slots = moved(slots, further, KINDS, 0, PITCHES, N)
    IS_WHOLE: tl.constexpr = N % BLOCK_N == 0
    TERMS: tl.constexpr = R * S * C
    formula: tl.constexpr = (KINDS, PROGRAM, OUTPUTS, PITCHES)
    # One half of the columns after the other where the epilogue takes too many registers at once.
    PART: tl.constexpr = BLOCK_N // PARTS
    early = ()
    if IS_EARLY:
        for i in tl.static_range(PARTS):
            first = column + i * PART
            early = early + (load_operands(slots, (row, first, M), N, formula, IS_WHOLE, BLOCK_M, PART),)

    if IS_PACKED:
        accumulator = _multiply_packed(
            x_ptrs, w_ptrs, y_in, x_in, H, W, R, S, C, X_PITCH, PAD_CODE, DILATIONS, BLOCK_M, BLOCK_N, BLOCK_K
        )
    else:
        accumulator = multiply(
            x_ptrs,
            w_ptrs,
            y_in,
            x_in,
            H,
            W,
            0,
            R,
            S,
            C,
            X_PITCH,
            1,
            PADS,
            PAD_CODE,
            DILATIONS,
            BLOCK_M,
            BLOCK_N,
            BLOCK_K,
            REPEATS,
        )
    parts = _parts_of(accumulator, PARTS, BLOCK_M, PART)
    for i in tl.static_range(PARTS):
        first = column + i * PART
        if IS_EARLY:
            store_loaded(parts[i], early[i], pointers, (row, first, M), N, TERMS, formula, IS_WHOLE)
        else:
            store_tile(parts[i], pointers, slots, (row, first, M), N, TERMS, formula, IS_WHOLE)


@triton.jit
def first_pixel(
    rows,
    H,
    W,
    P,
    Q,
    R: tl.constexpr,
    S: tl.constexpr,
    STRIDES: tl.constexpr,
    PADS: tl.constexpr,
    REPEATS: tl.constexpr = None,
):
    """For every output pixel its window's first input pixel: its number (int64), its line, its column.

    Where x is repeated the number is that of its image's first pixel; line and column are those of the
    repeated image.

    The first pixel may lie in the padding, before the image; its number is then that of another pixel, or
    negative, and only offsets that lead back into the image are read.
    """
    if _is_pointwise(R, S, STRIDES, PADS) and not has_repeats(REPEATS):
        return rows.to(tl.int64), rows, rows
    q = rows % Q
    line = rows // Q
    y_in = line % P * STRIDES[0] - PADS[0]
    x_in = q * STRIDES[1] - PADS[1]
    if has_repeats(REPEATS):
        return (line // P).to(tl.int64) * H * W, y_in, x_in
    return ((line // P).to(tl.int64) * H + y_in) * W + x_in, y_in, x_in


@triton.constexpr_function
def _is_pointwise(R, S, strides, pads):
    """Whether output pixel m sees input pixel m and no other."""
    return R == 1 and S == 1 and all(n == 1 for n in strides) and all(n == 0 for n in pads)


@triton.constexpr_function
def has_padding(pads):
    """Whether a window can reach beyond the image."""
    return any(n > 0 for n in pads)


@triton.jit
def _parts_of(accumulator, PARTS: tl.constexpr, BLOCK_M: tl.constexpr, PART: tl.constexpr):
    """The accumulator, or its left and its right half."""
    parts = (accumulator,)
    if PARTS == 2:
        parts = tl.split(tl.permute(tl.reshape(accumulator, (BLOCK_M, 2, PART)), (0, 2, 1)))
    return parts


@triton.jit
def multiply(
    x_ptrs,
    w_ptrs,
    y_in,
    x_in,
    H,
    W,
    split,
    R: tl.constexpr,
    S: tl.constexpr,
    C: tl.constexpr,
    X_PITCH: tl.constexpr,
    SPLITS: tl.constexpr,
    PADS: tl.constexpr,
    PAD_CODE: tl.constexpr,
    DILATIONS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    REPEATS: tl.constexpr = None,
):
    """The accumulator [BLOCK_M, BLOCK_N], block of channels by block of channels within a tap.

    Args:
        X_PITCH: elements from one pixel of x to the next.
        split, SPLITS: which of so many equal parts of the sum.
        PAD_CODE: what is read of the padding. Other than 0 it is put in place behind the copy: those that
            run ahead of the products leave zeros.
        REPEATS: of the lines and columns of x; then x_ptrs, y_in and x_in are as `first_pixel` says.
    """
    KIND: tl.constexpr = tl.int32 if x_ptrs.dtype.element_ty == tl.int8 else tl.float32
    C_BLOCKS: tl.constexpr = (C + BLOCK_K - 1) // BLOCK_K
    offs_k = tl.arange(0, BLOCK_K)
    x_tile = x_ptrs[:, None] + offs_k[None, :]
    w_tile = w_ptrs[None, :] + offs_k[:, None]
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=KIND)
    STEPS: tl.constexpr = R * S * C_BLOCKS // SPLITS
    height = H
    width = W
    if has_repeats(REPEATS):
        height = H * REPEATS[0]
        width = W * REPEATS[1]
    for turn in tl.range(0, STEPS):
        step = split * STEPS + turn
        tap = step // C_BLOCKS
        first = step % C_BLOCKS * BLOCK_K
        dy = tap // S * DILATIONS[0]
        dx = tap % S * DILATIONS[1]
        y = y_in + dy
        x = x_in + dx
        if has_repeats(REPEATS):
            pixel = y // REPEATS[0] * W + x // REPEATS[1]
            x_step = x_tile + (pixel * X_PITCH + first)[:, None]
        else:
            x_step = x_tile + ((dy * W + dx) * X_PITCH + first)
        w_step = w_tile + (tap * C + first)
        mask_k = offs_k < C - first
        if has_padding(PADS):
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
            mask_x = inside[:, None]
            if C % BLOCK_K != 0:
                mask_x = mask_x & mask_k[None, :]
            x_block = tl.load(x_step, mask=mask_x, other=PAD_CODE)
        elif C % BLOCK_K != 0:
            x_block = tl.load(x_step, mask=mask_k[None, :], other=0)
        else:
            x_block = tl.load(x_step)
        if C % BLOCK_K != 0:
            w_block = tl.load(w_step, mask=mask_k[:, None], other=0)
        else:
            w_block = tl.load(w_step)
        accumulator = tl.dot(factor(x_block), factor(w_block), accumulator, out_dtype=KIND)
    return accumulator


@triton.jit
def _multiply_packed(
    x_ptrs,
    w_ptrs,
    y_in,
    x_in,
    H,
    W,
    R: tl.constexpr,
    S: tl.constexpr,
    C: tl.constexpr,
    X_PITCH: tl.constexpr,
    PAD_CODE: tl.constexpr,
    DILATIONS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The accumulator [BLOCK_M, BLOCK_N] where a block spans taps: few channels, such as a first layer's."""
    KIND: tl.constexpr = tl.int32 if x_ptrs.dtype.element_ty == tl.int8 else tl.float32
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=KIND)
    for step in tl.range(0, (R * S * C + BLOCK_K - 1) // BLOCK_K):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        tap = k // C
        dy = tap // S * DILATIONS[0]
        dx = tap % S * DILATIONS[1]
        y = y_in[:, None] + dy[None, :]
        x = x_in[:, None] + dx[None, :]
        mask_k = k < R * S * C
        inside = (y >= 0) & (y < H) & (x >= 0) & (x < W) & mask_k[None, :]
        x_step = x_ptrs[:, None] + ((dy * W + dx) * X_PITCH + k % C)[None, :]
        x_block = tl.load(x_step, mask=inside, other=PAD_CODE)
        w_block = tl.load(w_ptrs[None, :] + k[:, None], mask=mask_k[:, None], other=0)
        accumulator = tl.dot(factor(x_block), factor(w_block), accumulator, out_dtype=KIND)
    return accumulator


@triton.jit
def pad_channels(
    x_ptr,
    y_ptr,
    M,
    HW,
    stride_xn,
    stride_xc,
    stride_xp,
    C: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """y[m, c] = x[m, c] where c < C, else 0; pixels of x are stride_xp apart, y is [M, PADDED]."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.arange(0, BLOCK_C)
    mask_m = (rows < M)[:, None]
    start = rows // HW * stride_xn + rows % HW * stride_xp
    x_tile = x_ptr + start[:, None] + c[None, :].to(tl.int64) * stride_xc
    x = tl.load(x_tile, mask=mask_m & (c < C)[None, :], other=0)
    tl.store(y_ptr + rows[:, None] * PADDED + c[None, :], x, mask=mask_m & (c < PADDED)[None, :])
