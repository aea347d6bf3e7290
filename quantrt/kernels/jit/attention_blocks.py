# SPDX-License-Identifier: Apache-2.0
"""Steps of attention over blocks of keys: tiles read, scores masked, scores made weights, results stored.

The largest score and the sum of exponentials of every query so far are kept (Milakov, Gimelshein, "Online
normalizer calculation for softmax", arXiv 1805.02867; Dao et al., "FlashAttention", arXiv 2205.14135).
Exponents are powers of two, the factor log2(e) being in what scores are multiplied by.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.jit.codes import from_fp8
from quantrt.kernels.jit.expression import evaluate, stored
from quantrt.kernels.jit.functions import INF, INTERPRETED, LOG2E, exp2

__all__ = ["counted", "hide_unseen", "load_rows", "masked", "multiply", "next_peak", "store_attended"]

LOWEST = tl.constexpr(-3.0e38)
LN2 = tl.constexpr(0.6931471805599453)


def _interpreted_range(start, stop):
    """What the interpreter's `tl.range` cannot make of numbers that are arguments."""
    ends = (end if isinstance(end, int) else int(end.handle.data.item()) for end in (start, stop))
    return range(*ends)


counted = _interpreted_range if INTERPRETED.value else tl.range


@triton.jit
def load_rows(tile, rows, columns, D: tl.constexpr):
    """[rows, columns] of a tile; columns beyond D are 0."""
    pointers = tile + rows[:, None] + columns[None, :]
    if columns.shape[0] == D:
        x = tl.load(pointers)
    else:
        x = tl.load(pointers, mask=(columns < D)[None, :], other=0.0)
    return x


@triton.jit
def masked(
    scores, scale, tile, rows, keys, T, value, KIND: tl.constexpr, HAS_ROWS: tl.constexpr, UNIT: tl.constexpr
):
    """Scaled scores with a mask that is added, or keys that are kept or dropped; and the log2 of their unit.

    Rows of the mask are filled up to a multiple of UNIT elements, which are read together.
    """
    is_there = keys // UNIT * UNIT < T
    if HAS_ROWS:
        given = tl.load(tile + rows[:, None] + keys[None, :], mask=is_there[None, :], other=0)
    else:
        given = tl.load(tile + keys, mask=is_there, other=0)[None, :]
    unit = 1.0
    if KIND == "kept":
        y = tl.where(given != 0, scores * scale, value)
    elif KIND == "dropped":
        y = tl.where(given != 0, value, scores * scale)
    elif given.dtype == tl.float16:  # what is finite stays so, times log2(e) too
        y = scores * (scale * LN2) + given.to(tl.float32)
        unit = LOG2E
    else:
        added = given.to(tl.float32) * LOG2E
        added = tl.where(given == -INF, -INF, tl.maximum(added, LOWEST, propagate_nan=tl.PropagateNan.ALL))
        y = scores * scale + added
    return y, unit


@triton.jit
def hide_unseen(scores, seen, queries, T, IS_CAUSAL: tl.constexpr):
    """Scores that are -inf where a key of `seen` is beyond the last, or comes after the query."""
    is_seen = (seen < T)[None, :]
    if IS_CAUSAL:
        is_seen = is_seen & (seen[None, :] <= queries[:, None])
    return tl.where(is_seen, scores, -INF)


@triton.jit
def next_peak(largest, most):
    """The largest score so far, what scores are lessened by, and the factor of earlier weights."""
    peak = tl.maximum(largest, most)
    # A query that has seen nothing yet has no largest score to subtract.
    base = tl.where(peak == -INF, 0.0, peak)
    return peak, base, exp2(largest - base)


@triton.jit
def multiply(a, b, sums):
    """Sums + a @ b, in float32, or int32 of int8. The interpreter has no products of bfloat16 and FP8."""
    if INTERPRETED and a.dtype == tl.float8e4nv:
        y = tl.dot(from_fp8(a), from_fp8(b), sums, input_precision="ieee")
    elif INTERPRETED and a.dtype != tl.int8:
        y = tl.dot(a.to(tl.float32), b.to(tl.float32), sums, input_precision="ieee")
    else:
        y = tl.dot(a, b, sums, out_dtype=sums.dtype)
    return y


@triton.jit
def store_attended(
    sums,
    total,
    slots,
    tiles,
    step,
    count,
    D: tl.constexpr,
    KINDS: tl.constexpr,
    PROGRAM: tl.constexpr,
    OUTPUTS: tl.constexpr,
):
    """The epilogue of sums / total, stored in the first `count` rows of the tiles; 0 where the total is."""
    inverse = tl.where(total == 0.0, 0.0, 1.0 / total)
    registers = (sums * inverse[:, None],)
    for i in tl.static_range(len(KINDS)):
        registers = registers + (slots[i],)
    results = evaluate(PROGRAM, registers)
    rows = tl.arange(0, sums.shape[0])
    columns = tl.arange(0, sums.shape[1])
    offsets = rows[:, None] * step + columns[None, :]
    mask = (rows < count)[:, None] & (columns < D)[None, :]
    for i in tl.static_range(len(OUTPUTS)):
        y = stored(PROGRAM, OUTPUTS[i], results, tiles[i].dtype.element_ty)
        tl.store(tiles[i] + offsets, tl.broadcast_to(y, sums.shape), mask=mask)
