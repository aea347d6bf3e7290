# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(masked(scale * q @ k^T)) @ v) without the scores in memory.

One program computes BLOCK_M queries of one head: it walks over the keys in blocks, see
`kernels.jit.attention_blocks`. Products are of float16 or bfloat16 with sums in float32.

IS_PACKED: samples lie behind each other without padding, sample b in the rows offsets_ptr[b] up to
offsets_ptr[b + 1] of [B * S, H, D]; S = T is the most rows that one may have.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.attention_blocks import (
    counted,
    hide_unseen,
    load_rows,
    masked,
    multiply,
    next_peak,
    store_attended,
)
from quantrt.kernels.jit.functions import INF, exp2

__all__ = ["attention"]


@triton.jit
def attention(
    q_ptr,
    k_ptr,
    v_ptr,
    mask_ptr,
    offsets_ptr,
    pointers,
    slots,
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
    mask_b,
    mask_h,
    mask_s,
    y_b,
    y_h,
    y_s,
    scale,
    mask_value,
    UNIT: tl.constexpr,
    MASK_UNIT: tl.constexpr,
    GROUPS: tl.constexpr,
    D: tl.constexpr,
    MASK: tl.constexpr,
    HAS_MASK_ROWS: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    IS_PACKED: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    tiles = tl.cdiv(S, BLOCK_M)
    first = tl.program_id(0) % tiles * BLOCK_M
    head = tl.program_id(0) // tiles % H
    sample = (tl.program_id(0) // tiles // H).to(tl.int64)
    # Where q, k, v and y of the sample begin.
    q_start, k_start, v_start, y_start = sample * q_b, sample * k_b, sample * v_b, sample * y_b
    if IS_PACKED:
        begin = tl.load(offsets_ptr + sample).to(tl.int64)
        S = (tl.load(offsets_ptr + sample + 1) - begin).to(tl.int32)
        T = S
        if first >= S:
            return
        q_start, k_start, v_start, y_start = begin * q_s, begin * k_t, begin * v_t, begin * y_s
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D)
    # Rows beyond the last read the last one again; columns beyond D are 0 in q, and so do not count.
    rows = tl.minimum(first + offs_m, S - 1)
    q_tile = q_ptr + (q_start + head * q_h) * UNIT
    k_tile = k_ptr + (k_start + head // GROUPS * k_h) * UNIT
    v_tile = v_ptr + (v_start + head // GROUPS * v_h) * UNIT
    mask_tile = mask_ptr + (sample * mask_b + head.to(tl.int64) * mask_h) * MASK_UNIT
    q = load_rows(q_tile, rows * (q_s * UNIT), offs_d, D)

    lowest = tl.full((BLOCK_M,), -INF, tl.float32)
    state = (lowest, tl.zeros((BLOCK_M,), tl.float32), tl.zeros((BLOCK_M, BLOCK_D), tl.float32))
    end = T
    if IS_CAUSAL:
        end = tl.minimum(T, first + BLOCK_M)
    blocks = tl.cdiv(end, BLOCK_N)
    keys = (k_tile, k_t * UNIT, v_tile, v_t * UNIT, offs_n, offs_d, T)
    masks = (mask_tile, rows * (mask_s * MASK_UNIT), mask_value)
    queries = first + offs_m
    for block in counted(0, blocks):
        state = attend(
            q,
            block * BLOCK_N,
            queries,
            keys,
            masks,
            scale,
            state,
            D,
            MASK,
            HAS_MASK_ROWS,
            MASK_UNIT,
            IS_CAUSAL,
        )

    _, total, sums = state
    place = y_start + head.to(tl.int64) * y_h + first.to(tl.int64) * y_s
    store_attended(
        sums,
        total,
        slots,
        (pointers[0] + place, pointers[1] + place),
        y_s,
        S - first,
        D,
        KINDS,
        PROGRAM,
        OUTPUTS,
    )


@triton.jit
def attend(
    q,
    start,
    queries,
    keys,
    masks,
    scale,
    state,
    D: tl.constexpr,
    MASK: tl.constexpr,
    HAS_MASK_ROWS: tl.constexpr,
    MASK_UNIT: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
):
    """Largest score, sum of exponentials and weighted sum of v after one more block of keys."""
    largest, total, sums = state
    k_tile, k_step, v_tile, v_step, offs_n, offs_d, T = keys
    mask_tile, mask_rows, mask_value = masks
    BLOCK_N: tl.constexpr = offs_n.shape[0]
    places = tl.minimum(start + offs_n, T - 1)
    k = load_rows(k_tile, places * k_step, offs_d, D)
    scores = multiply(q, tl.trans(k), tl.zeros((q.shape[0], k.shape[0]), tl.float32))
    unit = scale
    if MASK != "none":
        seen = start + offs_n
        scores, unit = masked(
            scores, scale, mask_tile, mask_rows, seen, T, mask_value, MASK, HAS_MASK_ROWS, MASK_UNIT
        )
    is_edge = start + BLOCK_N > T
    if IS_CAUSAL:
        is_edge = is_edge | (start + BLOCK_N > tl.min(queries))
    if is_edge:
        scores = hide_unseen(scores, start + offs_n, queries, T, IS_CAUSAL)
    peak, base, rescale = next_peak(largest, tl.max(scores, axis=1) * unit)
    weights = exp2(scores * unit - base[:, None])
    v = load_rows(v_tile, places * v_step, offs_d, D)
    sums = multiply(weights.to(v.dtype), v, sums * rescale[:, None])
    return peak, total * rescale + tl.sum(weights, axis=1), sums
