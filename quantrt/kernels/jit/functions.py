# SPDX-License-Identifier: Apache-2.0
"""Functions of float32 blocks that no instruction computes, from those that one does: exp2 and reciprocal.

Errors are absolute unless said otherwise, before the roundings of float32 on the way. With floating-point
fusion off they cost half as much again.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels import overlap

__all__ = [
    "INTERPRETED",
    "await_kernels_before",
    "erf",
    "exp",
    "gelu",
    "left_by_masks",
    "power",
    "sigmoid",
    "softplus",
    "swap_pairs",
    "tanh",
]

HERE = tl.constexpr("mov.u32 $0, 0;\n" + overlap.HERE)
INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
INF = tl.constexpr(float("inf"))
LOG2E = tl.constexpr(1.4426950408889634)
TANH_SMALL = tl.constexpr(0.625)
"""Below it tanh(x) = x + x**3 * P(x**2), P the minimax polynomial of degree 4: relative error 4.4e-9. Above
it (1 - e) / (1 + e) with e = exp(-2 |x|) cancels too little to matter: 2 ulp."""


@triton.jit
def await_kernels_before():
    """Behind it, what kernels before this one stored is there; see `kernels.overlap`.

    A kernel that calls it reads nothing that another stores, and stores nothing itself, until each of its
    warps has called it, or waits for one that has.
    """
    if not INTERPRETED:
        tl.inline_asm_elementwise(HERE, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def exp2(x):
    """Within 2 ulp; results below 2**-126 are 0."""
    if INTERPRETED:
        y = tl.exp2(x)
    else:
        y = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return y


@triton.jit
def reciprocal(x):
    """Within 1 ulp; of what is beyond 2**126 it is 0."""
    if INTERPRETED:
        y = 1.0 / x
    else:
        y = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return y


@triton.jit
def exp(x):
    return exp2(x * LOG2E)


@triton.jit
def sigmoid(x):
    return reciprocal(1.0 + exp2(x * -LOG2E))


@triton.jit
def erf(x):
    """1 - 2 / (1 + 2**(x * P(x**2))), P of degree 6 by Lawson's weighted least squares: error 5.8e-8.

    The exponent is log2((1 + erf x) / (1 - erf x)), which is odd and smooth. P is positive everywhere, so
    that the quotient saturates beyond 4, where erf is 1 in float32.
    """
    square = x * x
    p = 4.586545179665515e-07 * square - 1.7270999808193585e-05
    p = p * square + 0.00025885582241794256
    p = p * square - 0.0018054456626844049
    p = p * square - 0.0005320177611876963
    p = p * square + 0.2965185003593994
    p = p * square + 3.255815610708451
    return 1.0 - 2.0 * reciprocal(1.0 + exp2(x * p))


@triton.jit
def gelu(x):
    """x * Phi(x) as x / (1 + 2**(-x * P(x**2))), P of degree 4 as for erf: error 3.1e-6."""
    square = x * x
    p = -3.2104050459455e-06 * square + 8.791021936147017e-05
    p = p * square + 0.00036204561890646917
    p = p * square - 0.10522997369416211
    p = p * square - 2.3020437767729227
    return x * reciprocal(1.0 + exp2(x * p))


@triton.jit
def tanh(x):
    square = x * x
    small = -0.00570498 * square + 0.02063908
    small = small * square - 0.05373971
    small = small * square + 0.13331442
    small = small * square - 0.33333282
    small = x + x * (square * small)
    e = exp(-2.0 * tl.abs(x))
    large = (1.0 - e) * reciprocal(1.0 + e)
    return tl.where(tl.abs(x) < TANH_SMALL, small, tl.where(x < 0.0, -large, large))


@triton.jit
def softplus(x):
    """max(x, 0) + log1p(e), e = exp(-|x|); log1p by Kahan's correction, for 1 + e loses digits of e."""
    e = exp(-tl.abs(x))
    one = 1.0 + e
    log1p = tl.where(one == 1.0, e, tl.log(one) * (e / (one - 1.0)))
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) + log1p


@triton.jit
def power(a, b):
    """a ** b as C's pow: through float64, for a float32 logarithm times b loses digits."""
    x = a.to(tl.float64)
    y = b.to(tl.float64)
    size = tl.exp2(y * tl.log2(tl.abs(x))).to(tl.float32)
    size = tl.where((tl.abs(a) == 1.0) & (tl.abs(b) == INF), 1.0, size)
    is_whole = tl.floor(b) == b
    is_odd = is_whole & (tl.floor(b * 0.5) != b * 0.5)
    is_negative = (a < 0.0) | (tl.div_rn(1.0, a) < 0.0)  # -0.0 too
    signed = tl.where(is_negative & is_odd, -size, size)
    signed = tl.where((a < 0.0) & (a != -INF) & (is_whole == 0), float("nan"), signed)
    return tl.where((b == 0.0) | (a == 1.0), 1.0, signed)


@triton.jit
def swap_pairs(x):
    """A block [rows, columns] with neighbouring columns exchanged; what all columns have in common stays."""
    if x.shape[1] == 1:
        y = x
    else:
        even, odd = tl.split(tl.reshape(x, (x.shape[0], x.shape[1] // 2, 2)))
        y = tl.reshape(tl.join(odd, even), (x.shape[0], x.shape[1]))
    return y


@triton.jit
def left_by_masks(CODE: tl.constexpr, size):
    """What a load of int8 is to leave where it is masked: a number that the compiler does not know.

    Of a constant below 0 Triton 3.6 puts one byte into each word of a wide load, and ones into the others.

    Args:
        size: an int32 argument that is not below 0.
    """
    if CODE == 0:
        y = 0
    else:
        y = (CODE + (size >> 31)).to(tl.int8)
    return y
