# SPDX-License-Identifier: Apache-2.0
"""y[m, n] = epilogue(maximum or mean over r, s of x[window(m, r, s), n]), and the same over whole images.

Row m is the output pixel (image, p, q), or the image; column n the channel. x and y are channels-last, so
that everything is contiguous along channels. The maximum of codes is a code, that of floats hands on NaN.
Codes are summed in int32, exactly, floats in float32; the mean is one correctly rounded division.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.conv2d.triton_kernel import first_pixel
from quantrt.kernels.jit.epilogue import store_as_is, store_tile, sums_to_float
from quantrt.kernels.jit.functions import left_by_masks
from quantrt.kernels.pool.spec import MAX_UNROLLED

UNROLLED = tl.constexpr(MAX_UNROLLED)
LOWEST = tl.constexpr(-(1 << 31))
LOADS = tl.constexpr(4)
"""Blocks of pixels that one turn of the loop over an image loads."""


@triton.jit
def pool(
    x_ptr,
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
    IS_MAX: tl.constexpr,
    IS_INSIDE: tl.constexpr,
    COUNTS_PADDING: tl.constexpr,
    WIDTH: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    X_PITCH: tl.constexpr,
    PITCHES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program: BLOCK_M pixels of the output, BLOCK_N channels. IS_INSIDE: no window leaves the image."""
    IS_WHOLE: tl.constexpr = N % BLOCK_N == 0
    tiles_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    pid = tl.program_id(0)
    row = (pid // tiles_n) * BLOCK_M
    column = (pid % tiles_n) * BLOCK_N
    # Rows beyond the last read the last one again: they are never stored.
    rows = row + tl.minimum(tl.arange(0, BLOCK_M), M - row - 1)
    pixel, y_in, x_in = first_pixel(rows, H, W, P, Q, R, S, STRIDES, PADS)
    # Loads are of WIDTH neighbouring channels, as one number.
    UNITS: tl.constexpr = N // WIDTH
    PITCH: tl.constexpr = X_PITCH // WIDTH
    units = column // WIDTH + tl.arange(0, BLOCK_N // WIDTH)
    x_units = x_ptr if WIDTH == 1 else x_ptr.to(tl.pointer_type(tl.int32))
    x_tile = x_units + pixel[:, None] * PITCH + units[None, :]
    mask_n = (units < UNITS)[None, :]
    pooled = _empty(x_ptr, IS_MAX, WIDTH, BLOCK_M, BLOCK_N // WIDTH)
    FILL: tl.constexpr = _fill(x_units, IS_MAX) if IS_MAX else PAD_CODE
    fill = _left(x_units, FILL, H)
    if R * S <= UNROLLED:
        for tap in tl.static_range(R * S):
            value = _tap(
                x_tile, mask_n, y_in, x_in, tap, H, W, PITCH, S, DILATIONS, fill, IS_INSIDE, IS_WHOLE
            )
            pooled = _joined(pooled, value, IS_MAX, WIDTH)
    else:
        for tap in tl.range(0, R * S):
            value = _tap(
                x_tile, mask_n, y_in, x_in, tap, H, W, PITCH, S, DILATIONS, fill, IS_INSIDE, IS_WHOLE
            )
            pooled = _joined(pooled, value, IS_MAX, WIDTH)
    if WIDTH == 4:
        pooled = _codes_of(pooled, BLOCK_M, BLOCK_N)
    if not IS_MAX:
        total = sums_to_float(pooled, (R * S + 127) // 128)
        if IS_INSIDE:
            pooled = tl.div_rn(total, tl.full((BLOCK_M, BLOCK_N), R * S, tl.float32))
        else:
            count = _count(y_in, H, R, DILATIONS[0], COUNTS_PADDING, PADS[0], PADS[2])
            count *= _count(x_in, W, S, DILATIONS[1], COUNTS_PADDING, PADS[1], PADS[3])
            divisor = tl.maximum(count, 1)[:, None].to(tl.float32)
            mean = tl.div_rn(total, tl.broadcast_to(divisor, (BLOCK_M, BLOCK_N)))
            pooled = tl.where((count > 0)[:, None], mean, float("nan"))

    formula: tl.constexpr = (KINDS, PROGRAM, OUTPUTS, PITCHES)
    _store(pooled, pointers, slots, (row, column, M), N, formula, IS_WHOLE)


@triton.jit
def global_pool(
    x_ptr,
    pointers,
    slots,
    M,
    HW,
    N: tl.constexpr,
    IS_MAX: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program: BLOCK_N channels of one of the M images, BLOCK_M of its HW pixels at a time."""
    IS_WHOLE: tl.constexpr = N % BLOCK_N == 0
    tiles_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    pid = tl.program_id(0)
    image = pid // tiles_n
    column = (pid % tiles_n) * BLOCK_N
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask_n = (column + offs_n < N)[None, :]
    x_tile = x_ptr + (image.to(tl.int64) * HW * N + column) + offs_m[:, None] * N + offs_n[None, :]
    pooled = _empty(x_ptr, IS_MAX, 1, BLOCK_M, BLOCK_N)
    FILL: tl.constexpr = _fill(x_ptr, IS_MAX)
    fill = _left(x_ptr, FILL, HW)
    # `while`, for the interpreter makes no range of an argument; several loads are on their way at once.
    first = pid * 0
    while first < HW:
        for i in tl.static_range(LOADS):
            mask = (offs_m < HW - first - i * BLOCK_M)[:, None]
            if not IS_WHOLE:
                mask = mask & mask_n
            value = tl.load(x_tile + i * BLOCK_M * N, mask=mask, other=fill)
            pooled = _joined(pooled, value, IS_MAX, 1)
        x_tile += LOADS * BLOCK_M * N
        first += LOADS * BLOCK_M
    if IS_MAX:
        pooled = tl.reduce(pooled, 0, _larger, keep_dims=True)
    else:
        total = tl.sum(pooled, axis=0, keep_dims=True).to(tl.float32)
        pooled = tl.div_rn(total, tl.cast(HW, tl.float32))

    formula: tl.constexpr = (KINDS, PROGRAM, OUTPUTS, None)
    _store(pooled, pointers, slots, (image, column, M), N, formula, IS_WHOLE)


@triton.jit
def _empty(x_ptr, IS_MAX: tl.constexpr, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """What nothing was taken into yet: int32 for codes, float32 for floats; of four codes, each by itself."""
    TYPE: tl.constexpr = tl.int32 if x_ptr.dtype.element_ty == tl.int8 else tl.float32
    if WIDTH == 4:
        lowest = tl.full((BLOCK_M, BLOCK_N), LOWEST, tl.int32)
        empty = (lowest, lowest, lowest, lowest)
    else:
        empty = tl.full((BLOCK_M, BLOCK_N), _fill(x_ptr, IS_MAX), TYPE)
    return empty


@triton.constexpr_function
def _fill(x_ptr, is_max):
    """What changes nothing when it is taken in; of int32, four codes of -128."""
    if not is_max:
        return 0
    element = x_ptr.dtype.element_ty
    return -0x7F7F7F80 if element == tl.int32 else -128 if element == tl.int8 else -float("inf")


@triton.jit
def _left(x_ptr, FILL: tl.constexpr, size):
    """What a masked load is to leave."""
    if x_ptr.dtype.element_ty == tl.int8:
        y = left_by_masks(FILL, size)
    else:
        y = FILL
    return y


@triton.jit
def _tap(
    x_tile,
    mask_n,
    y_in,
    x_in,
    tap,
    H,
    W,
    PITCH: tl.constexpr,
    S: tl.constexpr,
    DILATIONS: tl.constexpr,
    fill,
    IS_INSIDE: tl.constexpr,
    IS_WHOLE: tl.constexpr,
):
    """What one tap of every window reads; `fill` where there is nothing."""
    dy = tap // S * DILATIONS[0]
    dx = tap % S * DILATIONS[1]
    x_ptrs = x_tile + (dy * W + dx) * PITCH
    if IS_INSIDE and IS_WHOLE:
        return tl.load(x_ptrs)
    mask = mask_n
    if not IS_INSIDE:
        y = y_in + dy
        x = x_in + dx
        inside = ((y >= 0) & (y < H) & (x >= 0) & (x < W))[:, None]
        mask = inside if IS_WHOLE else mask & inside
    return tl.load(x_ptrs, mask=mask, other=fill)


@triton.jit
def _joined(pooled, value, IS_MAX: tl.constexpr, WIDTH: tl.constexpr):
    """`pooled` with what one tap read.

    Of four codes in an int32, which is larger is decided by the first one; those behind it only ever change
    the digits behind it. So each of them is shifted to the front once, and none needs to be unpacked.
    """
    if WIDTH == 4:
        y = ()
        for i in tl.static_range(4):
            y = y + (tl.maximum(pooled[i], value << (24 - 8 * i)),)
    elif IS_MAX:
        y = _larger(pooled, value.to(pooled.dtype))
    else:
        y = pooled + value.to(pooled.dtype)
    return y


@triton.jit
def _codes_of(fours, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """[BLOCK_M, BLOCK_N] of the first codes of four times as many int32."""
    even = tl.join(fours[0] >> 24, fours[2] >> 24)
    odd = tl.join(fours[1] >> 24, fours[3] >> 24)
    return tl.reshape(tl.join(even, odd), (BLOCK_M, BLOCK_N))


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _count(
    first,
    size,
    TAPS: tl.constexpr,
    DILATION: tl.constexpr,
    COUNTS_PADDING: tl.constexpr,
    BEGIN: tl.constexpr,
    END: tl.constexpr,
):
    """How many taps of each window along one axis count."""
    low = -BEGIN if COUNTS_PADDING else 0
    high = size + END if COUNTS_PADDING else size
    count = tl.zeros_like(first)
    for tap in tl.static_range(TAPS):
        place = first + tap * DILATION
        count += ((place >= low) & (place < high)).to(tl.int32)
    return count


@triton.jit
def _store(pooled, pointers, slots, place, N: tl.constexpr, formula: tl.constexpr, IS_WHOLE: tl.constexpr):
    """The epilogue, where there is one."""
    if pooled.dtype == tl.int32 and len(formula[1]) == 0:
        store_as_is(pooled, pointers, place, N, formula, IS_WHOLE)
    else:
        store_tile(pooled, pointers, slots, place, N, 1, formula, IS_WHOLE)
