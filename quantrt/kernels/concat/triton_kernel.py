# SPDX-License-Identifier: Apache-2.0
"""y[r, c_0 + ... + c_(i-1) + j] = x_i[r, j] for j < c_i: rows of several tensors side by side.

A program copies BLOCK_R rows of every input, the second axis of the grid shares out their columns. Words are
integers: nothing is computed.
"""

# mypy: ignore-errors
import triton
import triton.language as tl


# Arguments as a table: pointers, distances of rows, words of a row.
# fmt: off
@triton.jit
def concat(
    y,
    x0, x1, x2, x3, x4, x5, x6, x7,
    s0, s1, s2, s3, s4, s5, s6, s7,
    c0, c1, c2, c3, c4, c5, c6, c7,
    R, C,
    COUNT: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    # fmt: on
    pointers = (x0, x1, x2, x3, x4, x5, x6, x7)
    strides = (s0, s1, s2, s3, s4, s5, s6, s7)
    counts = (c0, c1, c2, c3, c4, c5, c6, c7)
    rows = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)[:, None]
    far = rows.to(tl.int64)
    columns = tl.arange(0, BLOCK_C)[None, :]
    before = tl.program_id(0) * 0
    for i in tl.static_range(COUNT):
        # `while`, for the interpreter makes no range of an argument.
        first = tl.program_id(1) * BLOCK_C
        while first < counts[i]:
            part = columns + first
            mask = (rows < R) & (part < counts[i])
            words = tl.load(pointers[i] + far * strides[i] + part, mask=mask)
            tl.store(y + far * C + before + part, words, mask=mask)
            first += tl.num_programs(1) * BLOCK_C
        before += counts[i]
