# SPDX-License-Identifier: Apache-2.0
"""y[m, n] = epilogue(sum over r, s of x[window(m, r, s), n] * w[r, s, n]), in patches of pixels.

A thread has a patch of ROWS x COLUMNS output pixels of VECTOR neighbouring channels, and reads every pixel
that its windows share once: of 3x3 taps 36 reads for 16 pixels, where each pixel by itself needs 144. x and y
are channels-last, w is [R, S, N]. Patches are numbered along channels first, so that the threads of a warp
read what is contiguous.

Lines of up to four codes are added by one instruction (IS_DOT), in int32. Elsewhere sums are of float32:
nothing is rounded where codes are added, integers below 2**24, nor in products of two float16.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.byte_dots import add_dots, words_of
from quantrt.kernels.jit.epilogue import registers_of
from quantrt.kernels.jit.expression import evaluate, stored
from quantrt.kernels.jit.functions import INTERPRETED, left_by_masks

BYTES_TO_FLOATS = tl.constexpr("""
{
.reg .b32 t<5>;
xor.b32 t0, $4, 0x80808080;
prmt.b32 t1, t0, 0x4B000000, 0x7440;
prmt.b32 t2, t0, 0x4B000000, 0x7441;
prmt.b32 t3, t0, 0x4B000000, 0x7442;
prmt.b32 t4, t0, 0x4B000000, 0x7443;
mov.b32 $0, t1;
mov.b32 $1, t2;
mov.b32 $2, t3;
mov.b32 $3, t4;
add.rn.f32 $0, $0, 0fCB000080;
add.rn.f32 $1, $1, 0fCB000080;
add.rn.f32 $2, $2, 0fCB000080;
add.rn.f32 $3, $3, 0fCB000080;
}
""")
"""Four codes, plus 128, as the last digits of 2**23; 2**23 + 128 is taken off. Conversions of integers take
four times as long."""


@triton.jit
def depthwise_patches(
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
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_HELD: tl.constexpr,
    IS_DOT: tl.constexpr,
):
    """One program has BLOCK patches.

    Args:
        IS_HELD: all weights of a thread stay in registers; otherwise those of a line of the window are read
            again for every line of x.
    """
    WORDS: tl.constexpr = N // VECTOR
    tiles_q = tl.cdiv(Q, COLUMNS)
    tiles_p = tl.cdiv(P, ROWS)
    patches = M // (P * Q) * tiles_p * tiles_q * WORDS
    number = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_patch = number < patches
    number = tl.minimum(number, patches - 1)
    channels = (number % WORDS * VECTOR)[:, None] + tl.arange(0, VECTOR)[None, :]
    patch = number // WORDS
    q = patch % tiles_q * COLUMNS
    line = patch // tiles_q
    p = line % tiles_p * ROWS
    image = (line // tiles_p).to(tl.int64)

    y_in = p * STRIDES[0] - PADS[0]
    x_in = q * STRIDES[1] - PADS[1]
    x_tile = x_ptr + (((image * H + y_in) * W + x_in) * N)[:, None] + channels
    w_tile = w_ptr + channels
    padding = left_by_masks(PAD_CODE, H)
    ACROSS: tl.constexpr = (S, STRIDES[1], DILATIONS[1], COLUMNS, IS_DOT)
    held = ()
    if IS_HELD:
        for r in tl.static_range(R):
            held = held + _line_of_weights(w_tile + r * (S * N), N, ACROSS)
    sums = ()
    for _ in tl.static_range(ROWS * COLUMNS):
        sums = sums + (tl.zeros((BLOCK, VECTOR), dtype=tl.int32 if IS_DOT else tl.float32),)
    for i in tl.static_range((ROWS - 1) * STRIDES[0] + (R - 1) * DILATIONS[0] + 1):
        if _is_read(i, ROWS, R, STRIDES[0], DILATIONS[0]):
            pixels = _line_of_pixels(x_tile + i * W * N, y_in + i, x_in, H, W, padding, N, ACROSS)
            added = ()
            for row in tl.static_range(ROWS):
                added = added + _add_line(
                    sums,
                    pixels,
                    held,
                    w_tile,
                    row,
                    _tap_of(i, row, R, STRIDES[0], DILATIONS[0]),
                    N,
                    ACROSS,
                    IS_HELD,
                )
            sums = added
    first = ((image * P + p) * Q + q)[:, None] * N + channels
    formula: tl.constexpr = (KINDS, PROGRAM, OUTPUTS, None)
    _store(sums, pointers, slots, first, channels, is_patch, p, q, P, Q, N, R * S, formula, COLUMNS)


@triton.constexpr_function
def _tap_of(i, row, taps, stride, dilation):
    """The tap by which output `row` reads line i of the patch's input; -1 where it reads none of it."""
    offset = i - row * stride
    return offset // dilation if 0 <= offset < taps * dilation and offset % dilation == 0 else -1


@triton.constexpr_function
def _is_read(i, rows, taps, stride, dilation):
    """Whether any output of a patch reads line or column i of its input."""
    offsets = [i - row * stride for row in range(rows)]
    return any(0 <= offset < taps * dilation and offset % dilation == 0 for offset in offsets)


@triton.constexpr_function
def _extent(across):
    """Columns of a patch's input."""
    taps, stride, dilation, columns, _ = across
    return (columns - 1) * stride + (taps - 1) * dilation + 1


@triton.constexpr_function
def _shared(across):
    """Output columns whose taps are among the same four columns."""
    taps, stride, _, _, is_dot = across
    return (4 - taps) // stride + 1 if is_dot else 1


@triton.jit
def _line_of_pixels(x_line, y, x_in, H, W, padding, N: tl.constexpr, ACROSS: tl.constexpr):
    """What the windows of a line of output pixels read of a line of x: a float of every column, or words of
    four columns; 0 where they read nothing.
    """
    is_line = (y >= 0) & (y < H)
    pixels = ()
    for j in tl.static_range(_extent(ACROSS)):
        if _is_read(j, ACROSS[3], ACROSS[0], ACROSS[1], ACROSS[2]):
            x = x_in + j
            mask = is_line & (x >= 0) & (x < W)
            pixel = tl.load(x_line + j * N, mask=mask[:, None], other=padding)
            pixels = pixels + (pixel if ACROSS[4] else _floats(pixel),)
        else:
            pixels = pixels + (0.0,)
    return _words(pixels, ACROSS) if ACROSS[4] else pixels


@triton.jit
def _words(pixels, ACROSS: tl.constexpr):
    """Words of four columns, the first of which is that of an output pixel's first tap."""
    none = tl.zeros(pixels[0].shape, dtype=tl.int8)
    more = pixels + (none, none, none)
    words = ()
    for column in tl.static_range(0, ACROSS[3], _shared(ACROSS)):
        words = words + (_word(more, column * ACROSS[1]),)
    return words


@triton.jit
def _word(columns, FIRST: tl.constexpr):
    return words_of(columns[FIRST], columns[FIRST + 1], columns[FIRST + 2], columns[FIRST + 3])


@triton.jit
def _line_of_weights(w_line, N: tl.constexpr, ACROSS: tl.constexpr):
    """Of a line of the window: a float for every tap; or a word for each place of them in four columns."""
    taps = ()
    for s in tl.static_range(ACROSS[0]):
        weight = tl.load(w_line + s * N)
        taps = taps + (weight if ACROSS[4] else _floats(weight),)
    if ACROSS[4]:
        none = tl.zeros(taps[0].shape, dtype=tl.int8)
        word = _word(taps + (none, none, none), 0)
        weights = ()
        for place in tl.static_range(_shared(ACROSS)):
            weights = weights + (word << (8 * place * ACROSS[1]),)
    else:
        weights = taps
    return weights


@triton.jit
def _floats(x):
    """Elements as float32."""
    if x.dtype == tl.int8 and not INTERPRETED:
        y = tl.inline_asm_elementwise(
            BYTES_TO_FLOATS, "=&f,=&f,=&f,=&f,r", [x], dtype=tl.float32, is_pure=True, pack=4
        )
    else:
        y = x.to(tl.float32)
    return y


@triton.jit
def _add_line(
    sums,
    pixels,
    held,
    w_tile,
    ROW: tl.constexpr,
    TAP: tl.constexpr,
    N: tl.constexpr,
    ACROSS: tl.constexpr,
    IS_HELD: tl.constexpr,
):
    """The sums of a row of the patch, with what a line of x adds to them by line TAP of the window, or -1."""
    COLUMNS: tl.constexpr = ACROSS[3]
    SHARED: tl.constexpr = _shared(ACROSS)
    COUNT: tl.constexpr = SHARED if ACROSS[4] else ACROSS[0]  # of weights of a line
    FIRST: tl.constexpr = TAP * COUNT if IS_HELD else 0
    weights = held
    if TAP >= 0 and not IS_HELD:
        weights = _line_of_weights(w_tile + TAP * (ACROSS[0] * N), N, ACROSS)
    added = ()
    for column in tl.static_range(COLUMNS):
        total = sums[ROW * COLUMNS + column]
        if TAP >= 0 and ACROSS[4]:
            total = add_dots(pixels[column // SHARED], weights[FIRST + column % SHARED], total)
        elif TAP >= 0:
            for s in tl.static_range(ACROSS[0]):
                total = tl.fma(pixels[column * ACROSS[1] + s * ACROSS[2]], weights[FIRST + s], total)
        added = added + (total,)
    return added


@triton.jit
def _store(
    sums,
    pointers,
    slots,
    first,
    channels,
    is_patch,
    p,
    q,
    P,
    Q,
    N: tl.constexpr,
    TERMS: tl.constexpr,
    formula: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The epilogue of every pixel of a patch.

    Args:
        first: elements before those of the patch's first pixel, [patches, VECTOR].
    """
    KINDS: tl.constexpr = formula[0]
    constants = ()
    for i in tl.static_range(len(KINDS)):
        if KINDS[i] == "scalar":
            constants = constants + (slots[i],)
        elif KINDS[i] == "tensor":
            constants = constants + (0.0,)  # of every pixel its own
        else:
            constants = constants + (tl.load(slots[i] + channels),)
    for pixel in tl.static_range(len(sums)):
        place = first + (pixel // COLUMNS * Q + pixel % COLUMNS) * N
        mask = (is_patch & (p + pixel // COLUMNS < P) & (q + pixel % COLUMNS < Q))[:, None]
        operands = ()
        for i in tl.static_range(len(KINDS)):
            if KINDS[i] == "tensor":
                operands = operands + (tl.load(slots[i] + place, mask=mask, other=0.0),)
            else:
                operands = operands + (constants[i],)
        results = evaluate(formula[1], registers_of(sums[pixel], operands, TERMS, formula[1]))
        for i in tl.static_range(len(formula[2])):
            y_ptr = pointers[i]
            y = stored(formula[1], formula[2][i], results, y_ptr.dtype.element_ty)
            tl.store(y_ptr + place, tl.broadcast_to(y, sums[pixel].shape), mask=mask)
