# SPDX-License-Identifier: Apache-2.0
"""y[m, c] = epilogue(x[source(m), c]) where row m is a pixel of the result, channels-last.

What is moved and nothing else is moved as it is, codes too.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.epilogue import store_as_is, store_tile


@triton.jit
def repeat_pixels(
    x_ptr,
    pointers,
    slots,
    M,
    P,
    Q,
    C: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    X_PITCH: tl.constexpr,
    PITCHES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program: BLOCK_M of the M pixels of results of P lines of Q pixels, BLOCK_N channels."""
    IS_WHOLE: tl.constexpr = C % BLOCK_N == 0
    tiles_n: tl.constexpr = (C + BLOCK_N - 1) // BLOCK_N
    pid = tl.program_id(0)
    row = (pid // tiles_n) * BLOCK_M
    column = (pid % tiles_n) * BLOCK_N
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m < M - row)[:, None]
    if not IS_WHOLE:
        mask = mask & (offs_n < C - column)[None, :]
    # Lines of all images are counted on: those of x are a whole number of them too.
    pixel = row + tl.minimum(offs_m, M - row - 1)
    line = pixel // Q
    source = (line // R).to(tl.int64) * (Q // S) + pixel % Q // S
    x = tl.load(x_ptr + (source * X_PITCH + column)[:, None] + offs_n[None, :], mask=mask, other=0.0)

    place = (row, column, M)
    formula: tl.constexpr = (KINDS, PROGRAM, OUTPUTS, PITCHES)
    if len(PROGRAM) == 0 and x_ptr.dtype == pointers[0].dtype:
        store_as_is(x, pointers, place, C, formula, IS_WHOLE)
    else:
        store_tile(x, pointers, slots, place, C, 1, formula, IS_WHOLE)
