# SPDX-License-Identifier: Apache-2.0
"""y[m, n] = epilogue(sum over r, s of x[window(m, r, s), n] * w[r, s, n]), in patches of pixels.

A thread has a patch of ROWS x COLUMNS output pixels of VECTOR neighbouring channels. It walks down the lines
of x and keeps the sums of all output lines that are begun, so that every pixel is read once: of 3x3 taps and
14x4 pixels 1.7 reads for an output, where each pixel by itself needs 9. The next line is read while one is
added. x and y are channels-last, w is [R, S, N]. Patches are numbered along channels first, so that the
threads of a warp read what is contiguous.

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

WORD = tl.constexpr(tl.pointer_type(tl.int32))

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
    DILATION: tl.constexpr,
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
        DILATION: horizontal.
        IS_HELD: all weights of a thread stay in registers; otherwise they are read again for every line.
    """
    WORDS: tl.constexpr = N // VECTOR
    PITCH: tl.constexpr = WORDS if IS_DOT else N  # of pixels, in what is read at once
    tiles_q = tl.cdiv(Q, COLUMNS)
    tiles_p = tl.cdiv(P, ROWS)
    patches = M // (P * Q) * tiles_p * tiles_q * WORDS
    number = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    is_patch = number < patches
    number = tl.minimum(number, patches - 1)
    channels = number % WORDS * VECTOR + tl.arange(0, VECTOR)[None, :]
    patch = number // WORDS
    q = patch % tiles_q * COLUMNS
    line = patch // tiles_q
    p = line % tiles_p * ROWS
    image = (line // tiles_p).to(tl.int64)

    y = p * STRIDES[0] - PADS[0]
    x_in = q * STRIDES[1] - PADS[1]
    x_first = x_ptr + ((image * H + y) * W + x_in) * N
    if IS_DOT:
        x_tile = x_first.to(WORD, bitcast=True) + number % WORDS
        w_tile = w_ptr.to(WORD, bitcast=True) + number % WORDS
        padding = (PAD_CODE & 255) * 0x01010101
    else:
        x_tile = x_first + channels
        w_tile = w_ptr + channels
        padding = left_by_masks(PAD_CODE, H)
    formula: tl.constexpr = (KINDS, PROGRAM, OUTPUTS, None)
    constants = _constants(slots, channels, KINDS)
    ACROSS: tl.constexpr = (S, STRIDES[1], DILATION, COLUMNS, IS_DOT)
    held = ()
    if IS_HELD:
        held = _weights(w_tile, R, PITCH, ACROSS)
    BEGUN: tl.constexpr = (R - 1) // STRIDES[0]  # output lines to which the next line of x adds too
    sums = ()
    for _ in tl.static_range(BEGUN * COLUMNS):
        sums = sums + (tl.zeros((BLOCK, VECTOR), dtype=tl.int32 if IS_DOT else tl.float32),)
    none = tl.zeros((BLOCK, VECTOR), dtype=tl.int32 if IS_DOT else tl.float32)
    ahead = _read(x_tile, y, x_in, H, W, padding, PITCH, STRIDES[0], ACROSS)
    place = ((image * P + p - BEGUN) * Q + q) * N + channels
    for step in tl.range(0, ROWS + BEGUN):
        pixels = ahead
        y += STRIDES[0]
        x_tile += STRIDES[0] * W * PITCH
        ahead = _read(x_tile, y, x_in, H, W, padding, PITCH, STRIDES[0], ACROSS)
        weights = held
        if not IS_HELD:
            weights = _weights(w_tile, R, PITCH, ACROSS)
        lines = _usable(pixels, STRIDES[0], ACROSS)
        added = ()
        for begun in tl.static_range(BEGUN + 1):
            added = added + _add(sums, none, lines, weights, begun, R, STRIDES[0], ACROSS)
        row = p + step - BEGUN
        is_row = is_patch & (step >= BEGUN) & (row < P)
        _store(added[BEGUN * COLUMNS :], pointers, slots, constants, place, is_row, q, Q, N, R * S, formula)
        place += Q * N
        if BEGUN > 0:
            sums = added[: BEGUN * COLUMNS]


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
def _read(x_tile, y, x_in, H, W, padding, PITCH: tl.constexpr, COUNT: tl.constexpr, ACROSS: tl.constexpr):
    """Pixels of COUNT lines of x from line y on that windows of one output line read; 0 between them."""
    pixels = ()
    for i in tl.static_range(COUNT):
        is_line = (y + i >= 0) & (y + i < H)
        for j in tl.static_range(_extent(ACROSS)):
            if _is_read(j, ACROSS[3], ACROSS[0], ACROSS[1], ACROSS[2]):
                mask = is_line & (x_in + j >= 0) & (x_in + j < W)
                pixels = pixels + (tl.load(x_tile + (i * W + j) * PITCH, mask=mask, other=padding),)
            else:
                pixels = pixels + (0,)
    return pixels


@triton.jit
def _usable(pixels, COUNT: tl.constexpr, ACROSS: tl.constexpr):
    """Of every line the floats of all columns, or words of four."""
    WIDTH: tl.constexpr = _extent(ACROSS)
    lines = ()
    for i in tl.static_range(COUNT):
        if ACROSS[4]:
            lines = lines + (_words(pixels[i * WIDTH : (i + 1) * WIDTH], ACROSS),)
        else:
            lines = lines + (_all_floats(pixels[i * WIDTH : (i + 1) * WIDTH], ACROSS),)
    return lines


@triton.jit
def _all_floats(pixels, ACROSS: tl.constexpr):
    found = ()
    for j in tl.static_range(len(pixels)):
        if _is_read(j, ACROSS[3], ACROSS[0], ACROSS[1], ACROSS[2]):
            found = found + (_floats(pixels[j]),)
        else:
            found = found + (0.0,)
    return found


@triton.jit
def _words(pixels, ACROSS: tl.constexpr):
    """Words of four columns, the first of which is that of an output pixel's first tap."""
    none = tl.zeros(pixels[0].shape, dtype=tl.int32)
    more = pixels + (none, none, none)
    words = ()
    for column in tl.static_range(0, ACROSS[3], _shared(ACROSS)):
        words = words + (_word(more, column * ACROSS[1]),)
    return words


@triton.jit
def _word(columns, FIRST: tl.constexpr):
    return words_of(columns[FIRST], columns[FIRST + 1], columns[FIRST + 2], columns[FIRST + 3])


@triton.jit
def _weights(w_tile, R: tl.constexpr, PITCH: tl.constexpr, ACROSS: tl.constexpr):
    """Of every line a float for every tap, or a word for each place of the taps in four columns."""
    weights = ()
    for r in tl.static_range(R):
        taps = ()
        for s in tl.static_range(ACROSS[0]):
            weight = tl.load(w_tile + (r * ACROSS[0] + s) * PITCH)
            taps = taps + (weight if ACROSS[4] else _floats(weight),)
        if ACROSS[4]:
            none = tl.zeros(taps[0].shape, dtype=tl.int32)
            word = _word(taps + (none, none, none), 0)
            for place in tl.static_range(_shared(ACROSS)):
                weights = weights + (word << (8 * place * ACROSS[1]),)
        else:
            weights = weights + taps
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
def _add(
    sums,
    none,
    lines,
    weights,
    BEGUN: tl.constexpr,
    R: tl.constexpr,
    STRIDE: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """The sums of the output line that was begun so many steps ago, with what these lines of x add."""
    COLUMNS: tl.constexpr = ACROSS[3]
    SHARED: tl.constexpr = _shared(ACROSS)
    COUNT: tl.constexpr = SHARED if ACROSS[4] else ACROSS[0]  # of weights of a line
    added = ()
    for column in tl.static_range(COLUMNS):
        total = none
        if BEGUN > 0:
            total = sums[(BEGUN - 1) * COLUMNS + column]
        for i in tl.static_range(STRIDE):
            if BEGUN * STRIDE + i < R:
                if ACROSS[4]:
                    weight = weights[(BEGUN * STRIDE + i) * COUNT + column % SHARED]
                    total = add_dots(lines[i][column // SHARED], weight, total)
                else:
                    for s in tl.static_range(ACROSS[0]):
                        weight = weights[(BEGUN * STRIDE + i) * COUNT + s]
                        total = tl.fma(lines[i][column * ACROSS[1] + s * ACROSS[2]], weight, total)
        added = added + (total,)
    return added


@triton.jit
def _constants(slots, channels, KINDS: tl.constexpr):
    """Operands of the epilogue that all pixels have in common."""
    constants = ()
    for i in tl.static_range(len(KINDS)):
        if KINDS[i] == "scalar":
            constants = constants + (slots[i],)
        elif KINDS[i] == "tensor":
            constants = constants + (0.0,)  # of every pixel its own
        else:
            constants = constants + (tl.load(slots[i] + channels),)
    return constants


@triton.jit
def _store(
    sums,
    pointers,
    slots,
    constants,
    first,
    is_row,
    q,
    Q,
    N: tl.constexpr,
    TERMS: tl.constexpr,
    formula: tl.constexpr,
):
    """The epilogue of an output line.

    Args:
        first: elements before those of its first pixel, [patches, VECTOR].
    """
    KINDS: tl.constexpr = formula[0]
    for column in tl.static_range(len(sums)):
        place = first + column * N
        mask = is_row & (q + column < Q)
        operands = ()
        for i in tl.static_range(len(KINDS)):
            if KINDS[i] == "tensor":
                operands = operands + (tl.load(slots[i] + place, mask=mask, other=0.0),)
            else:
                operands = operands + (constants[i],)
        results = evaluate(formula[1], registers_of(sums[column], operands, TERMS, formula[1]))
        for i in tl.static_range(len(formula[2])):
            y_ptr = pointers[i]
            y = stored(formula[1], formula[2][i], results, y_ptr.dtype.element_ty)
            tl.store(y_ptr + place, tl.broadcast_to(y, sums[column].shape), mask=mask)
