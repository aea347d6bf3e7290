# SPDX-License-Identifier: Apache-2.0
"""y[m, c] = epilogue((x[m, c] + shift[image, c] - mean[image, group]) * rstd[image, group]), channels-last.

Row m is a pixel of an image, column c a channel. Sums over pixels are of differences to a pivot, the mean of
a channel over the first tiles, so that a large mean costs no digits of the variance.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.expression import evaluate, stored


@triton.jit
def whole_groups(
    x_ptr,
    pointers,
    slots,
    shift_ptr,
    shift_stride,
    epsilon,
    HW,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    HAS_SHIFT: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program: the D channels of one group of one image."""
    GROUPS: tl.constexpr = C // D
    pid = tl.program_id(0)
    image = pid // GROUPS
    column = (pid % GROUPS) * D
    offs_n = tl.arange(0, BLOCK_N)
    mask_n = offs_n < D
    shift = _shift(shift_ptr + image.to(tl.int64) * shift_stride + column, mask_n, HAS_SHIFT, BLOCK_N)
    start = image.to(tl.int64) * HW * C + column
    pivot, total, squares = _sums(x_ptr + start, shift, mask_n, HW, C, 1, BLOCK_M, BLOCK_N)
    count = tl.cast(HW, tl.float32)
    mean_n = pivot + total / count
    inside = tl.where(mask_n, squares - total * (total / count), 0.0)
    # All channels have the same weight.
    first = tl.sum(tl.where(mask_n, mean_n, 0.0), axis=0) / D
    mean = first + tl.sum(tl.where(mask_n, mean_n - first, 0.0), axis=0) / D
    between = tl.where(mask_n, mean_n - mean, 0.0)
    variance = (tl.sum(inside, axis=0) / count + tl.sum(between * between, axis=0)) / D
    rstd = tl.div_rn(1.0, tl.sqrt_rn(tl.maximum(variance, 0.0, propagate_nan=tl.PropagateNan.ALL) + epsilon))

    operands = _of_channels(slots, image, column, mask_n, KINDS, C, BLOCK_N)
    offset = mean - shift
    rstd = tl.zeros((BLOCK_N,), tl.float32) + rstd
    offsets = tl.arange(0, BLOCK_M)[:, None] * C + offs_n[None, :]
    row = pid * 0
    while row < HW:
        mask = _mask(HW - row, mask_n, D == BLOCK_N, BLOCK_M)
        x = tl.load(x_ptr + start + offsets, mask=mask, other=0.0)
        y = (x.to(tl.float32) - offset[None, :]) * rstd[None, :]
        _store(y, pointers, slots, operands, start + offsets, mask, KINDS, PROGRAM, OUTPUTS)
        start += BLOCK_M * C
        row += BLOCK_M


@triton.jit
def sum_parts(
    x_ptr,
    shift_ptr,
    shift_stride,
    parts_ptr,
    HW,
    ROWS,
    PARTS,
    HAS_SHIFT: tl.constexpr,
    C: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """parts[image, part, 0 | 1, c] = mean | sum of squares around it, over ROWS pixels of one image."""
    tiles_n: tl.constexpr = (C + BLOCK_N - 1) // BLOCK_N
    pid = tl.program_id(0)
    column = (pid % tiles_n) * BLOCK_N
    place = pid // tiles_n
    image = place // PARTS
    row = (place % PARTS) * ROWS
    rows = tl.minimum(HW - row, ROWS)
    offs_n = tl.arange(0, BLOCK_N)
    mask_n = offs_n < C - column
    shift = _shift(shift_ptr + image.to(tl.int64) * shift_stride + column, mask_n, HAS_SHIFT, BLOCK_N)
    x_part = x_ptr + ((image.to(tl.int64) * HW + row) * C + column)
    pivot, total, squares = _sums(x_part, shift, mask_n, rows, C, TILES, BLOCK_M, BLOCK_N)
    count = tl.cast(rows, tl.float32)
    part = parts_ptr + place.to(tl.int64) * 2 * C + column
    tl.store(part + offs_n, pivot + total / count, mask=mask_n)
    tl.store(part + C + offs_n, squares - total * (total / count), mask=mask_n)


@triton.jit
def merge_parts(
    parts_ptr,
    stats_ptr,
    epsilon,
    HW,
    ROWS,
    PARTS,
    C: tl.constexpr,
    D: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """stats[image, 0 | 1, c] = mean | rstd of the group of channel c; one program for a group of an image."""
    GROUPS: tl.constexpr = C // D
    pid = tl.program_id(0)
    image = pid // GROUPS
    column = (pid % GROUPS) * D
    offs_k = tl.arange(0, BLOCK_K)[:, None]
    offs_d = tl.arange(0, BLOCK_D)[None, :]
    mask_d = offs_d < D
    part = parts_ptr + image.to(tl.int64) * PARTS * 2 * C + column
    elements = tl.cast(HW, tl.float32) * D
    pivot = tl.load(part)
    total = tl.zeros((BLOCK_K, BLOCK_D), tl.float32)
    k = pid * 0
    while k < PARTS:
        mask = (offs_k < PARTS - k) & mask_d
        mean = tl.load(part + (k + offs_k) * 2 * C + offs_d, mask=mask, other=0.0)
        total += tl.where(mask, _count(k + offs_k, HW, ROWS) * (mean - pivot), 0.0)
        k += BLOCK_K
    group_mean = pivot + tl.sum(tl.sum(total, axis=1), axis=0) / elements
    squares = tl.zeros((BLOCK_K, BLOCK_D), tl.float32)
    k = pid * 0
    while k < PARTS:
        mask = (offs_k < PARTS - k) & mask_d
        mean = tl.load(part + (k + offs_k) * 2 * C + offs_d, mask=mask, other=0.0)
        inside = tl.load(part + ((k + offs_k) * 2 + 1) * C + offs_d, mask=mask, other=0.0)
        between = mean - group_mean
        squares += tl.where(mask, inside + _count(k + offs_k, HW, ROWS) * between * between, 0.0)
        k += BLOCK_K
    variance = tl.sum(tl.sum(squares, axis=1), axis=0) / elements
    rstd = tl.div_rn(1.0, tl.sqrt_rn(tl.maximum(variance, 0.0, propagate_nan=tl.PropagateNan.ALL) + epsilon))
    stats = stats_ptr + image.to(tl.int64) * 2 * C + column
    lanes = tl.arange(0, BLOCK_D)
    tl.store(stats + lanes, tl.zeros((BLOCK_D,), tl.float32) + group_mean, mask=lanes < D)
    tl.store(stats + C + lanes, tl.zeros((BLOCK_D,), tl.float32) + rstd, mask=lanes < D)


@triton.jit
def normalize(
    x_ptr,
    pointers,
    slots,
    shift_ptr,
    shift_stride,
    stats_ptr,
    HW,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    HAS_SHIFT: tl.constexpr,
    C: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program: TILES * BLOCK_M pixels of one image, BLOCK_N channels; what they share is read once."""
    tiles_n: tl.constexpr = (C + BLOCK_N - 1) // BLOCK_N
    pid = tl.program_id(0)
    column = (pid % tiles_n) * BLOCK_N
    tiles_m = (HW + TILES * BLOCK_M - 1) // (TILES * BLOCK_M)
    image = pid // tiles_n // tiles_m
    row = (pid // tiles_n % tiles_m) * (TILES * BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask_n = offs_n < C - column
    shift = _shift(shift_ptr + image.to(tl.int64) * shift_stride + column, mask_n, HAS_SHIFT, BLOCK_N)
    stats = stats_ptr + image.to(tl.int64) * 2 * C + column + offs_n
    mean = tl.load(stats, mask=mask_n, other=0.0)
    rstd = tl.load(stats + C, mask=mask_n, other=0.0)
    operands = _of_channels(slots, image, column, mask_n, KINDS, C, BLOCK_N)
    offset = mean - shift
    start = (image.to(tl.int64) * HW + row) * C + column
    offsets = tl.arange(0, BLOCK_M)[:, None] * C + offs_n[None, :]
    loaded = ()
    for i in tl.static_range(TILES):
        mask = _mask(HW - row - i * BLOCK_M, mask_n, C % BLOCK_N == 0, BLOCK_M)
        loaded = loaded + (tl.load(x_ptr + start + i * BLOCK_M * C + offsets, mask=mask, other=0.0),)
    for i in tl.static_range(TILES):
        mask = _mask(HW - row - i * BLOCK_M, mask_n, C % BLOCK_N == 0, BLOCK_M)
        y = (loaded[i].to(tl.float32) - offset[None, :]) * rstd[None, :]
        place = start + i * BLOCK_M * C + offsets
        _store(y, pointers, slots, operands, place, mask, KINDS, PROGRAM, OUTPUTS)


@triton.jit
def _shift(shift_ptr, mask_n, HAS_SHIFT: tl.constexpr, BLOCK_N: tl.constexpr):
    """What is added to x, [BLOCK_N]."""
    if HAS_SHIFT:
        y = tl.load(shift_ptr + tl.arange(0, BLOCK_N), mask=mask_n, other=0.0).to(tl.float32)
    else:
        y = tl.zeros((BLOCK_N,), tl.float32)
    return y


@triton.jit
def _sums(
    x_ptr,
    shift,
    mask_n,
    rows,
    C: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Over `rows` pixels [BLOCK_N] each: a pivot, sums of differences to it, and of their squares.

    The pivot is the mean over the first TILES * BLOCK_M pixels, which are read once.

    TILES: of BLOCK_M pixels each, that are on their way before the first of them is summed.
    """
    ROWS: tl.constexpr = TILES * BLOCK_M
    offs_m = tl.arange(0, ROWS)[:, None]
    offs_n = tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < rows) & mask_n[None, :]
    x = tl.load(x_ptr + offs_m * C + offs_n, mask=mask, other=0.0).to(tl.float32)
    means = tl.sum(tl.sum(tl.reshape(x, (TILES, BLOCK_M, BLOCK_N)), axis=0), axis=0)
    offset = means / tl.minimum(rows, ROWS).to(tl.float32)
    d = tl.reshape(tl.where(mask, x - offset[None, :], 0.0), (TILES, BLOCK_M, BLOCK_N))
    total = tl.sum(d, axis=0)
    squares = tl.sum(d * d, axis=0)
    # `while`, for the interpreter makes no range of an argument.
    first = rows * 0 + ROWS
    while first < rows:
        x_ptr += ROWS * C
        mask = (offs_m < rows - first) & mask_n[None, :]
        x = tl.load(x_ptr + offs_m * C + offs_n, mask=mask, other=0.0).to(tl.float32)
        d = tl.reshape(tl.where(mask, x - offset[None, :], 0.0), (TILES, BLOCK_M, BLOCK_N))
        total += tl.sum(d, axis=0)
        squares += tl.sum(d * d, axis=0)
        first += ROWS
    return offset + shift, tl.sum(total, axis=0), tl.sum(squares, axis=0)


@triton.jit
def _count(part, HW, ROWS):
    """Pixels of a part; none of one that does not exist."""
    return tl.maximum(tl.minimum(HW - part * ROWS, ROWS), 0).to(tl.float32)


@triton.jit
def _mask(rows, mask_n, IS_FULL: tl.constexpr, BLOCK_M: tl.constexpr):
    """[BLOCK_M, BLOCK_N or 1]: which elements of a tile exist. IS_FULL: all of its columns do."""
    mask = (tl.arange(0, BLOCK_M) < rows)[:, None]
    if not IS_FULL:
        mask = mask & mask_n[None, :]
    return mask


@triton.jit
def _of_channels(slots, image, column, mask_n, KINDS: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr):
    """The operands that are the same for all pixels of an image, read once; 0 in the place of a tensor."""
    offs_n = tl.arange(0, BLOCK_N)
    operands = ()
    for i in tl.static_range(len(KINDS)):
        if KINDS[i] == "tensor":
            operands = operands + (0.0,)
        elif KINDS[i] == "scalar":
            operands = operands + (slots[i],)
        elif KINDS[i] == "image":
            per_image = image.to(tl.int64) * C + column
            operands = operands + (tl.load(slots[i] + per_image + offs_n, mask=mask_n, other=0.0)[None, :],)
        else:
            operands = operands + (tl.load(slots[i] + column + offs_n, mask=mask_n, other=0.0)[None, :],)
    return operands


@triton.jit
def _store(
    y,
    pointers,
    slots,
    operands,
    place,
    mask,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
):
    """Store the epilogue of one normalized tile. place: offsets of its elements."""
    known = (y,)
    for i in tl.static_range(len(KINDS)):
        if KINDS[i] == "tensor":
            known = known + (tl.load(slots[i] + place, mask=mask, other=0.0),)
        else:
            known = known + (operands[i],)
    results = evaluate(PROGRAM, known)
    for i in tl.static_range(len(OUTPUTS)):
        y_ptr = pointers[i]
        z = stored(PROGRAM, OUTPUTS[i], results, y_ptr.dtype.element_ty)
        tl.store(y_ptr + place, tl.broadcast_to(z, y.shape), mask=mask)
