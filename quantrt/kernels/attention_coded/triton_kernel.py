# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(masked(scale * q @ k^T)) @ v) over codes, without the scores in memory.

q [B, H, S, D], k [B, G, T, D]: int8 or FP8 codes with a scale for every row of q and every BLOCK_N rows of k,
that of q holding scale * log2(e) too; or floats without scales. v: FP8 codes [B, G, D, T'], T' being T filled
up to a multiple of 16, with a scale for every BLOCK_N keys; or floats [B, G, T, D]. Codes are those of
`kernels.attention_codes`, values in the order "keys". Zhang et al., "SageAttention2", arXiv 2411.10958.

One program computes BLOCK_M queries of one head: it walks over the keys in blocks, see
`kernels.jit.attention_blocks`. Masks are those of `kernels.attention`.

Sums of int8 begin at the bits of 1.5 * 2**23, so that they are those of 1.5 * 2**23 plus the sum, a float
that no conversion has to make; it is taken off where the largest score is. That holds for sums below 2**22:
heads of 256 and less. Codes of weights are 2**8 times them, the largest power of two in FP8's 448. Products
with FP8 are summed anew for every block, and added in float32: tensor cores keep 14 bits or so of such sums.
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
from quantrt.kernels.jit.codes import to_fp8
from quantrt.kernels.jit.functions import INF, exp2

__all__ = ["attention_coded"]

MAGIC = tl.constexpr(0x4B400000)
MAGIC_FLOAT = tl.constexpr(12582912.0)
"""1.5 * 2**23: its bits, and its value."""
WEIGHT_BITS = tl.constexpr(8.0)
LEAST_UNIT = tl.constexpr(1e-37)
"""Of scores, so that hidden ones, which are -inf, stay so: products of two scales may be 0."""
KEY_GROUP = tl.constexpr(16)
"""Keys that rows of codes of v are filled up to a multiple of."""


@triton.jit
def attention_coded(
    q_ptr,
    k_ptr,
    v_ptr,
    q_scale_ptr,
    k_scale_ptr,
    v_scale_ptr,
    mask_ptr,
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
    VALUE_UNIT: tl.constexpr,
    MASK_UNIT: tl.constexpr,
    GROUPS: tl.constexpr,
    D: tl.constexpr,
    MASK: tl.constexpr,
    HAS_MASK_ROWS: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
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
    group = head // GROUPS
    offs_m = tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    # Rows beyond the last read the last one again.
    rows = tl.minimum(first + offs_m, S - 1)
    q_tile = q_ptr + (sample * q_b + head.to(tl.int64) * q_h) * UNIT
    k_tile = k_ptr + (sample * k_b + group.to(tl.int64) * k_h) * UNIT
    v_tile = v_ptr + (sample * v_b + group.to(tl.int64) * v_h) * VALUE_UNIT
    mask_tile = mask_ptr + (sample * mask_b + head.to(tl.int64) * mask_h) * MASK_UNIT
    q = load_rows(q_tile, rows * (q_s * UNIT), offs_d, columns_of(q_ptr, D, BLOCK_D))
    row_unit = tl.full((BLOCK_M,), scale, tl.float32)
    if has_codes(q_ptr):
        row_unit = tl.load(q_scale_ptr + (sample * H + head) * S + rows)
    first_scale = (sample * (H // GROUPS) + group) * tl.cdiv(T, BLOCK_N)
    keys = (
        k_tile,
        k_t * UNIT,
        v_tile,
        v_t * VALUE_UNIT,
        k_scale_ptr + first_scale,
        v_scale_ptr + first_scale,
    )
    masks = (mask_tile, rows * (mask_s * MASK_UNIT), mask_value)

    lowest = tl.full((BLOCK_M,), -INF, tl.float32)
    state = (lowest, tl.zeros((BLOCK_M,), tl.float32), tl.zeros((BLOCK_M, BLOCK_D), tl.float32))
    # Blocks of which every query sees all keys go first, in a loop of their own: with a branch in it Triton
    # does not find that one product feeds the other, and shares out queries to warps by halves.
    whole, end = T // BLOCK_N, T
    if IS_CAUSAL:
        whole, end = tl.minimum(T, first + 1) // BLOCK_N, tl.minimum(T, first + BLOCK_M)
    for block in counted(0, whole):
        state = attend(
            q, row_unit, block, first + offs_m, keys, masks, T, state,
            D, MASK, HAS_MASK_ROWS, MASK_UNIT, IS_CAUSAL, BLOCK_N, False,
        )  # fmt: skip
    for block in counted(whole, tl.cdiv(end, BLOCK_N)):
        state = attend(
            q, row_unit, block, first + offs_m, keys, masks, T, state,
            D, MASK, HAS_MASK_ROWS, MASK_UNIT, IS_CAUSAL, BLOCK_N, True,
        )  # fmt: skip

    _, total, sums = state
    place = sample * y_b + head.to(tl.int64) * y_h + first.to(tl.int64) * y_s
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
    row_unit,
    block,
    queries,
    keys,
    masks,
    T,
    state,
    D: tl.constexpr,
    MASK: tl.constexpr,
    HAS_MASK_ROWS: tl.constexpr,
    MASK_UNIT: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HIDES: tl.constexpr,
):
    """Largest score, sum of exponentials and weighted sum of v after one more block of keys."""
    largest, total, sums = state
    k_tile, k_step, v_tile, v_step, k_scales, v_scales = keys
    mask_tile, mask_rows, mask_value = masks
    BLOCK_D: tl.constexpr = q.shape[1]
    start = block * BLOCK_N
    seen = start + tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D)
    places = tl.minimum(seen, T - 1) if HIDES else seen
    k = load_rows(k_tile, places * k_step, offs_d, columns_of(k_tile, D, BLOCK_D))
    unit = row_unit
    if has_codes(k_tile):
        unit = tl.maximum(unit * tl.load(k_scales + block), LEAST_UNIT, propagate_nan=tl.PropagateNan.ALL)
    ORIGIN: tl.constexpr = MAGIC_FLOAT if q.dtype == tl.int8 and MASK == "none" else 0.0
    scores = scores_of(q, k, ORIGIN)
    if MASK != "none":
        scores, one = masked(
            scores,
            unit[:, None],
            mask_tile,
            mask_rows,
            seen,
            T,
            mask_value,
            MASK,
            HAS_MASK_ROWS,
            MASK_UNIT,
        )
        unit = tl.full(unit.shape, one, tl.float32)
    if HIDES:
        scores = hide_unseen(scores, seen, queries, T, IS_CAUSAL)
    peak, base, rescale = next_peak(largest, (tl.max(scores, axis=1) - ORIGIN) * unit)
    HAS_VALUE_CODES: tl.constexpr = has_codes(v_tile)
    shift = base + ORIGIN * unit
    if HAS_VALUE_CODES:
        shift -= WEIGHT_BITS
    weights = exp2(scores * unit[:, None] - shift[:, None])
    if HAS_VALUE_CODES:
        pointers = v_tile + offs_d[:, None] * v_step + seen[None, :]
        if HIDES:  # rows are whole groups of keys, zeros behind the last one
            v = tl.load(pointers, mask=(seen // KEY_GROUP * KEY_GROUP < T)[None, :], other=0.0)
        else:
            v = tl.load(pointers)
        part = multiply(to_fp8(in_order(weights)), tl.trans(v), tl.zeros(sums.shape, tl.float32))
        sums = part * tl.load(v_scales + block) + sums * rescale[:, None]
    else:
        v = load_rows(v_tile, places * v_step, offs_d, D)
        sums = multiply(weights.to(v.dtype), v, sums * rescale[:, None])
    return peak, total * rescale + tl.sum(weights, axis=1), sums


@triton.jit
def in_order(weights):
    """Columns as keys of codes of v lie: place 16 h + 4 t + 2 a + b is key 16 h + 8 a + 2 t + b."""
    parts = weights.reshape(weights.shape[0], weights.shape[1] // 16, 2, 4, 2)
    return parts.permute(0, 1, 3, 2, 4).reshape(weights.shape[0], weights.shape[1])


@triton.jit
def scores_of(q, k, ORIGIN: tl.constexpr):
    """Products of queries with keys as float32, ORIGIN added to those of int8."""
    if q.dtype == tl.int8:
        sums = multiply(q, tl.trans(k), tl.full((q.shape[0], k.shape[0]), MAGIC, tl.int32))
        y = sums.to(tl.float32, bitcast=True)
        if ORIGIN == 0.0:
            y -= MAGIC_FLOAT
    else:
        y = multiply(q, tl.trans(k), tl.zeros((q.shape[0], k.shape[0]), tl.float32))
    return y


@triton.constexpr_function
def has_codes(pointer):
    """Whether 8-bit elements lie there."""
    return pointer.dtype.element_ty.primitive_bitwidth == 8


@triton.constexpr_function
def columns_of(pointer, D, BLOCK_D):
    """Columns of a row in memory: codes have zeros behind the head's."""
    return BLOCK_D if pointer.dtype.element_ty.primitive_bitwidth == 8 else D
