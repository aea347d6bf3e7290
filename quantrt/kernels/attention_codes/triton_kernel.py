# SPDX-License-Identifier: Apache-2.0
"""q [B, H, S, D], k and v [B, G, T, D] of floats -> codes with scales, in one launch.

    q_codes = round(q / s), s = max|q| / L for every row; kept as s * scale, scale being what scores are
              multiplied by, log2(e) in it
    k_codes = round((k - c) / s) for every BLOCK_N keys of a head; c is the mean of up to SAMPLES of its keys,
              evenly apart
    v_codes = round(v / s) for every BLOCK_N keys of a head; [D, T'] for each, in an ORDER of spec.py

L is 127 for int8 and 448 for FP8. Softmax is the same for k - c, whatever c is: a channel of keys that is
large in all of them costs no digits (Zhang et al., "SageAttention", arXiv 2410.02367, section 4.2).

A row or a block with an infinity or a NaN gets NaN for its scale. A program codes BLOCK_N rows of one of the
three, rows beyond the last one of v as zeros.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.codes import digits_near, to_fp8

__all__ = ["encode_attention"]

LARGEST_FP8 = tl.constexpr(448.0)
LEAST = tl.constexpr(5.421010862427522e-20)
"""2**-64: scales stay above 2**-73, so that neither they nor their ratios leave float32."""


@triton.jit
def encode_attention(
    q_ptr,
    k_ptr,
    v_ptr,
    q_codes_ptr,
    q_scale_ptr,
    k_codes_ptr,
    k_scale_ptr,
    v_codes_ptr,
    v_scale_ptr,
    B,
    H,
    S,
    T,
    q_b,
    q_h,
    q_s,
    k_b,
    k_h,
    k_t,
    v_b,
    v_h,
    v_t,
    scale,
    UNIT: tl.constexpr,
    GROUPS: tl.constexpr,
    D: tl.constexpr,
    SCORES: tl.constexpr,
    VALUES: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ORDER: tl.constexpr,
    SAMPLES: tl.constexpr,
):
    blocks = tl.cdiv(T, BLOCK_N)
    heads = B * (H // GROUPS)
    place = tl.program_id(0)
    queries = 0
    keys = 0
    if SCORES != "floats":
        q_blocks = tl.cdiv(S, BLOCK_N)
        queries = B * H * q_blocks
        keys = heads * blocks
        if place < queries:
            encode_queries(
                q_ptr, q_codes_ptr, q_scale_ptr, place // q_blocks, place % q_blocks, H, S,
                (q_b, q_h, q_s), scale, UNIT, D, SCORES, BLOCK_N, BLOCK_D,
            )  # fmt: skip
        elif place < queries + keys:
            place -= queries
            encode_keys(
                k_ptr, k_codes_ptr, k_scale_ptr, place // blocks, place % blocks, H // GROUPS, T,
                (k_b, k_h, k_t), UNIT, D, SCORES, BLOCK_N, BLOCK_D, SAMPLES,
            )  # fmt: skip
    if VALUES == "fp8":
        if tl.program_id(0) >= queries + keys:
            place = tl.program_id(0) - queries - keys
            encode_values(
                v_ptr, v_codes_ptr, v_scale_ptr, place // blocks, place % blocks, H // GROUPS, T,
                (v_b, v_h, v_t), UNIT, D, BLOCK_N, BLOCK_D, ORDER,
            )  # fmt: skip


@triton.jit
def encode_queries(
    x_ptr,
    codes_ptr,
    scale_ptr,
    head,
    block,
    heads,
    rows,
    strides,
    factor,
    UNIT: tl.constexpr,
    D: tl.constexpr,
    SCORES: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """A scale for every row."""
    places = block * BLOCK_N + tl.arange(0, BLOCK_N)
    x = load_block(x_ptr, head, heads, places, rows, strides, UNIT, D, BLOCK_D)
    scale = scale_of(tl.max(tl.abs(x), axis=1), tl.sum(x * 0.0, axis=1), SCORES)
    store_codes(codes_ptr, x, scale[:, None], head, places, rows, SCORES, BLOCK_D)
    tl.store(scale_ptr + head.to(tl.int64) * rows + places, scale * factor, mask=places < rows)


@triton.jit
def encode_keys(
    x_ptr,
    codes_ptr,
    scale_ptr,
    head,
    block,
    heads,
    rows,
    strides,
    UNIT: tl.constexpr,
    D: tl.constexpr,
    SCORES: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    SAMPLES: tl.constexpr,
):
    """One scale, of what differs from the mean."""
    numbers = tl.arange(0, SAMPLES)
    samples = tl.where(rows > SAMPLES, (numbers.to(tl.int64) * rows // SAMPLES).to(tl.int32), numbers)
    some = load_block(x_ptr, head, heads, samples, rows, strides, UNIT, D, BLOCK_D)
    mean = tl.sum(some, axis=0) / tl.minimum(rows, SAMPLES).to(tl.float32)
    places = block * BLOCK_N + tl.arange(0, BLOCK_N)
    x = load_block(x_ptr, head, heads, places, rows, strides, UNIT, D, BLOCK_D) - mean[None, :]
    x = tl.where((places < rows)[:, None], x, 0.0)
    scale = scale_of(tl.max(tl.abs(x)), tl.sum(x * 0.0), SCORES)
    store_codes(codes_ptr, x, scale, head, places, rows, SCORES, BLOCK_D)
    tl.store(scale_ptr + head * tl.cdiv(rows, BLOCK_N) + block, scale)


@triton.jit
def encode_values(
    x_ptr,
    codes_ptr,
    scale_ptr,
    head,
    block,
    heads,
    rows,
    strides,
    UNIT: tl.constexpr,
    D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ORDER: tl.constexpr,
):
    """One scale; turned round, keys and columns in an order of spec.py."""
    at = tl.arange(0, BLOCK_N)
    # Place 16 h + 4 t + 2 a + b is key 16 h + 8 a + 2 t + b.
    places = block * BLOCK_N + (at // 16 * 16 + at // 2 % 2 * 8 + at // 4 % 4 * 2 + at % 2)
    x = load_block(x_ptr, head, heads, places, rows, strides, UNIT, D, BLOCK_D)
    scale = scale_of(tl.max(tl.abs(x)), tl.sum(x * 0.0), "fp8")
    codes = tl.trans(to_fp8(x * (1.0 / scale)))
    columns = tl.arange(0, BLOCK_D)
    turned = columns
    if ORDER == "fragments":
        # Column BLOCK_D / 4 t + 2 j + b is row 8 j + 2 t + b.
        QUARTER: tl.constexpr = BLOCK_D // 4
        turned = columns % QUARTER // 2 * 8 + columns // QUARTER * 2 + columns % 2
    width = tl.cdiv(rows, 16) * 16
    keys = block * BLOCK_N + at
    start = codes_ptr + head.to(tl.int64) * BLOCK_D * width
    tl.store(start + turned[:, None] * width + keys[None, :], codes, mask=(keys < width)[None, :])
    tl.store(scale_ptr + head * tl.cdiv(rows, BLOCK_N) + block, scale)


@triton.jit
def load_block(
    x_ptr, head, heads, places, rows, strides, UNIT: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Rows of a head as float32; zeros beyond the last row and column."""
    columns = tl.arange(0, BLOCK_D)
    sample = (head // heads).to(tl.int64)
    start = x_ptr + (sample * strides[0] + (head % heads).to(tl.int64) * strides[1]) * UNIT
    offsets = places.to(tl.int64)[:, None] * (strides[2] * UNIT) + columns[None, :]
    mask = (places < rows)[:, None]
    if D != BLOCK_D:
        mask = mask & (columns < D)[None, :]
    return tl.load(start + offsets, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def scale_of(largest, zero, KIND: tl.constexpr):
    """What the largest number is divided by; NaN where `zero`, a sum of zeros times numbers, is."""
    LARGEST: tl.constexpr = LARGEST_FP8 if KIND == "fp8" else 127.0
    return tl.maximum(largest, LEAST) / LARGEST + zero


@triton.jit
def store_codes(codes_ptr, x, scale, head, places, rows, KIND: tl.constexpr, BLOCK_D: tl.constexpr):
    """Round and store rows."""
    if KIND == "fp8":
        codes = to_fp8(x * (1.0 / scale))
    else:
        codes = digits_near(x, scale).to(tl.int32, bitcast=True).to(tl.int8)
    columns = tl.arange(0, BLOCK_D)
    offsets = (head.to(tl.int64) * rows + places)[:, None] * BLOCK_D + columns[None, :]
    tl.store(codes_ptr + offsets, codes, mask=(places < rows)[:, None])
