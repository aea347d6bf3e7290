# SPDX-License-Identifier: Apache-2.0
"""Codes from blocks of float32, and floats from codes.

int8, by the digits of floats around 2**23:

    clip(rint(x / scale) + zero, -128, 127)        rint half to even, the division correctly rounded

An even zero point is added before the sum is rounded: it changes no tie, and is part of a constant there. An
odd one is added behind, by one more addition.

FP8 E4M3, by the conversions of compute capability 8.9 and above, which saturate and keep NaN (PTX ISA, cvt.rn
.satfinite.e4m3x2.f32). Triton's interpreter rounds halves up and loses NaN: there bits are made one by one.

    e4m3(clip(x / scale, -448, 448))        rounded half to even
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.functions import INF, INTERPRETED

__all__ = [
    "CODE_OFFSET",
    "ROUNDER",
    "code",
    "code_fp8",
    "code_fp8_near",
    "digits_near",
    "from_fp8",
    "quantize",
    "raw_float",
    "rint",
    "to_float",
    "to_fp8",
]

WHOLE = tl.constexpr(8388608.0)
"""2**23: at and above it every float32 is a whole number; adding it to a smaller one rounds half to even."""
CODE_BITS = tl.constexpr(0x4B000000)
"""Bits of 2**23 as float32; with a number below 2**23 put into the last digits, those of their sum."""
CODE_OFFSET = tl.constexpr(8388736.0)
"""2**23 + 128."""
ROUNDER = tl.constexpr(12582912.0)
"""1.5 * 2**23: added to |x| <= 2**22 and taken away again, it rounds half to even, of either sign."""

FOUR_FLOATS = tl.constexpr(
    "{ .reg .b32 t; xor.b32 t, $4, 0x80808080; "
    + " ".join(f"prmt.b32 ${i}, t, 0x4B000000, 0x765{i};" for i in range(4))
    + " }"
)
"""Of four codes in a register, the sign of each turned, and then it is the last byte of CODE_BITS."""

FP8_LARGEST = tl.constexpr(448.0)
FP8_NAN = tl.constexpr(0x7F)
FP8_SMALL = tl.constexpr(0.015625)
"""2**-6: below it numbers of E4M3 are multiples of 2**-9."""
FP8_SMALL_ROUNDER = tl.constexpr(16384.0)
FP8_SMALL_BITS = tl.constexpr(0x46800000)
"""2**14, whose last digit is 2**-9: added, it rounds to a multiple of that; and its bits."""
FP8_HALF = tl.constexpr((1 << 19) - 1)
FP8_SHIFT = tl.constexpr(20)
FP8_BIAS = tl.constexpr((127 - 7) << 3)
"""Of the 23 digits of a float32 E4M3 has 3; exponents are biased by 7 instead of 127."""


@triton.jit
def to_float(x):
    """An operand as float32.

    A code is written into the digits of a float, whose value is then 2**23 + 128 too large: integers are
    converted at an eighth of the rate of additions.
    """
    if tl.constexpr(isinstance(x, tl.tensor)) and x.dtype == tl.int8:
        y = raw_float(x) - CODE_OFFSET
    elif tl.constexpr(isinstance(x, tl.tensor)) and x.dtype == tl.float8e4nv:
        y = from_fp8(x)
    else:
        y = tl.cast(x, tl.float32)
    return y


@triton.jit
def raw_float(x):
    """A code plus CODE_OFFSET, as float32."""
    bits = (x.to(tl.uint8, bitcast=True) ^ 0x80).to(tl.uint32) | CODE_BITS
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def four_raw_floats(words):
    """`raw_float` of the first, second, third and fourth code in each int32."""
    if INTERPRETED:
        y = ()
        for i in tl.static_range(4):
            y = y + ((((words >> 8 * i) & 0xFF) ^ 0x80 | CODE_BITS).to(tl.float32, bitcast=True),)
    else:
        y = tl.inline_asm_elementwise(
            FOUR_FLOATS, "=r,=r,=r,=r,r", [words], dtype=(tl.float32,) * 4, is_pure=True, pack=1
        )
    return y


@triton.jit
def quotient(x, scale):
    """x / scale correctly rounded, for many finite x and one scale.

    A product with the reciprocal and one correction by its exact remainder (Markstein, "Computation of
    elementary functions on the IBM RISC System/6000 processor", 1990, theorem 7.1 ff.) take a fifth of the
    instructions of a division. The interpreter has no fused multiply-add, and divides.
    """
    if INTERPRETED:
        y = tl.div_rn(x, scale)
    else:
        inverse = tl.div_rn(1.0, scale)
        near = x * inverse
        y = tl.fma(tl.fma(near, -scale, x), inverse, near)
    return y


@triton.jit
def rounded_digits(x, zero, IS_ODD: tl.constexpr):
    """ROUNDER + rint(x) + zero, half to even."""
    if IS_ODD:
        y = (x + ROUNDER) + zero
    else:
        y = x + (ROUNDER + zero)
    return y


@triton.jit
def quantize(x, scale, zero=0.0, IS_ODD: tl.constexpr = False):
    """Codes of int8 as floats: clip(rint(x / scale) + zero, -128, 127), rint half to even; NaN stays.

    Clipped before the division, so that infinities do not reach it: what is beyond 127 scales has code 127.
    """
    y = tl.maximum(x, (-128.0 - zero) * scale, propagate_nan=tl.PropagateNan.ALL)
    y = tl.minimum(y, (127.0 - zero) * scale, propagate_nan=tl.PropagateNan.ALL)
    return rounded_digits(quotient(y, scale), zero, IS_ODD) - ROUNDER


@triton.jit
def code(x, scale, zero=0.0, IS_ODD: tl.constexpr = False, is_positive: tl.constexpr = False):
    """The same as int8; NaN has the lowest code, as the larger of NaN and a number is the number.

    Args:
        is_positive: x is neither below 0 nor NaN, so that no code is too low.
    """
    y = x
    if INTERPRETED:  # where it is NaN
        y = tl.where(x == x, x, -INF)
    if not is_positive:
        y = tl.maximum(y, (-128.0 - zero) * scale)
    y = tl.minimum(y, (127.0 - zero) * scale)
    # The digits of a whole number plus ROUNDER end in its two's complement.
    return rounded_digits(quotient(y, scale), zero, IS_ODD).to(tl.int32, bitcast=True).to(tl.int8)


@triton.jit
def digits_near(x, scale, zero=0.0):
    """ROUNDER plus the code of x: the product with the reciprocal of the scale, which may round to the next.

    NaN has the lowest code. The interpreter's maximum hands it on, a GPU's does not.
    """
    x, inverse = tl.broadcast(x, tl.div_rn(1.0, scale))
    if INTERPRETED:
        y = tl.where(x == x, x * inverse, -INF) + (ROUNDER + zero)
    else:
        y = tl.fma(x, inverse, ROUNDER + zero)
    return tl.minimum(tl.maximum(y, ROUNDER - 128.0), ROUNDER + 127.0)


@triton.jit
def code_fp8(x, scale):
    """Codes of FP8 E4M3. Clipped before the division, so that infinities do not reach it."""
    y = tl.maximum(x, -FP8_LARGEST * scale, propagate_nan=tl.PropagateNan.ALL)
    y = tl.minimum(y, FP8_LARGEST * scale, propagate_nan=tl.PropagateNan.ALL)
    return to_fp8(quotient(y, scale))


@triton.jit
def code_fp8_near(x, scale):
    """The same by a product with the reciprocal of the scale, which may round to the next code."""
    x, inverse = tl.broadcast(x, tl.div_rn(1.0, scale))
    return to_fp8(x * inverse)


@triton.jit
def to_fp8(x):
    """float32 as FP8 E4M3: rounded half to even, saturated; NaN stays."""
    if INTERPRETED:
        y = _fp8_bits(x).to(tl.float8e4nv, bitcast=True)
    else:
        y = x.to(tl.float8e4nv)
    return y


@triton.jit
def from_fp8(x):
    """FP8 E4M3 as float32."""
    y = x.to(tl.float32)
    if INTERPRETED:
        y = tl.where((x.to(tl.uint8, bitcast=True) & FP8_NAN) == FP8_NAN, float("nan"), y)
    return y


@triton.jit
def _fp8_bits(x):
    """The bits of `to_fp8`, by those of float32."""
    size = tl.minimum(tl.abs(x), FP8_LARGEST)
    bits = size.to(tl.uint32, bitcast=True)
    large = ((bits + FP8_HALF + ((bits >> FP8_SHIFT) & 1)) >> FP8_SHIFT) - FP8_BIAS
    small = (size + FP8_SMALL_ROUNDER).to(tl.uint32, bitcast=True) - FP8_SMALL_BITS
    code = tl.where(size < FP8_SMALL, small, large)
    sign = (x.to(tl.uint32, bitcast=True) >> 24) & 0x80
    return tl.where(x == x, code | sign, FP8_NAN).to(tl.uint8)


@triton.jit
def rint(x):
    magnitude = (tl.abs(x) + WHOLE) - WHOLE
    return tl.where(tl.abs(x) < WHOLE, tl.where(x < 0.0, -magnitude, magnitude), x)
