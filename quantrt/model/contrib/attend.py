# SPDX-License-Identifier: Apache-2.0
"""softmax(scale * q k^T + masks) v, in the standard operators that exporters write it with.

q [B, N, S, D], k [B, N, T, D], v [B, N, T, Dv]. Masks, as ONNX Runtime makes them of what it is given
(onnxruntime, contrib_ops/cpu/bert/attention_helper.h, PrepareMask): `mask_filter_value` is added to the
scores of keys that are padding, the lowest float stands for those behind a causal query's own place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.model.contrib.writer import NoSpellingError, Writer

__all__ = ["Keys", "added", "attended", "counted", "head_size", "heads_apart", "padding_mask"]

_LOWEST = float(np.finfo(np.float32).min)
_FILTER = -10000.0  # the default of mask_filter_value
_INT64 = int(ir.DataType.INT64)


@dataclass(frozen=True)
class Keys:
    """What a query may see.

    Attributes:
        bias: added to the scaled scores, [B or 1, N or 1, S or 1, T]; None for nothing.
        past: how many keys stand before the first query, a vector of one, or one for each text, [B, 1, 1, 1];
            None where attention is not causal. 0: no keys do.
        window: how many keys a query sees back from its own place, that one counted; None for all.
        softcap: scores become softcap * tanh(scores / softcap); 0 for none.
    """

    bias: ir.Value | None = None
    is_causal: bool = False
    past: ir.Value | None = None
    window: int | None = None
    softcap: float = 0.0


def attended(w: Writer, q: ir.Value, k: ir.Value, v: ir.Value, *, scale: float, keys: Keys) -> ir.Value:
    """The result with heads side by side, [B, S, N * Dv]."""
    scores = w.op("MatMul", q, w.op("Transpose", k, perm=(0, 1, 3, 2)))
    scores = w.op("Mul", scores, w.number(scale, "scale"))
    if keys.softcap:
        cap = w.number(keys.softcap, "softcap")
        scores = w.op("Mul", w.op("Tanh", w.op("Div", scores, cap)), cap)
    if keys.bias is not None:
        scores = w.op("Add", scores, keys.bias)
    if keys.is_causal:
        scores = w.op("Where", _seen(w, q, k, keys), scores, w.number(_LOWEST, "lowest"))
    context = w.op("MatMul", w.op("Softmax", scores, axis=-1), v)
    return w.reshaped(w.op("Transpose", context, perm=(0, 2, 1, 3)), 0, 0, -1)


def heads_apart(w: Writer, value: ir.Value, heads: int) -> ir.Value:
    """[B, S, N * D] -> [B, N, S, D]."""
    return w.op("Transpose", w.reshaped(value, 0, 0, heads, -1), perm=(0, 2, 1, 3))


def head_size(width: object, heads: int, what: str) -> int:
    """Elements of a head."""
    if not isinstance(width, int):
        raise NoSpellingError(f"the width of its {what} is not known, and with it the scale of its scores")
    if width % heads:
        raise NoSpellingError(f"its {what} of {width} are not whole heads: it has {heads}")
    return width // heads


def padding_mask(w: Writer, mask: ir.Value, batch: ir.Value, k: ir.Value) -> ir.Value:
    """What is added to the scores for a mask of ones and zeros, or of lengths.

    Args:
        mask: integers [B] (lengths), [2 B] (ends, then starts), [3 B + 2] (lengths first), [B, T] or
            [B, S, T].
        batch: whose first axis is the batch.
    """
    rank = w.rank(mask)
    if rank == 1:
        kept = _of_lengths(w, mask, batch, k)
        kept = w.unsqueezed(kept, 1, 2)
    elif rank in (2, 3):
        kept = w.op("Greater", mask, w.constant(np.asarray(0, _kind(mask)), "zero"))
        kept = w.unsqueezed(kept, 1, 2) if rank == 2 else w.unsqueezed(kept, 1)
    else:
        raise NoSpellingError(f"its mask '{mask.name}' has {rank} axes; 1, 2 and 3 have a spelling")
    low = w.number(w.float_of("mask_filter_value", _FILTER), "filter")
    return w.op("Where", kept, w.number(0.0, "seen"), low)


def added(w: Writer, *parts: ir.Value | None) -> ir.Value | None:
    """The sum of those that are there."""
    total: ir.Value | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else w.op("Add", total, part)
    return total


def counted(w: Writer, size: ir.Value) -> ir.Value:
    """0, 1, ... up to a size, which is a vector of one."""
    ends = [w.constant(np.asarray(number, np.int64), what) for number, what in ((0, "start"), (1, "step"))]
    return w.op("Range", ends[0], w.op("Squeeze", size, w.integers(0)), ends[1])


def _seen(w: Writer, q: ir.Value, k: ir.Value, keys: Keys) -> ir.Value:
    """Whether a query may see a key: not behind its own place, nor before the window."""
    rows = w.unsqueezed(counted(w, w.size(q, 2)), 1)
    columns = w.unsqueezed(counted(w, w.size(k, 2)), 0)
    if keys.past is not None:
        rows = w.op("Add", rows, keys.past)
    seen = w.op("LessOrEqual", columns, rows)
    if keys.window is None:
        return seen
    first = w.op("Sub", rows, w.constant(np.asarray(keys.window, np.int64), "window"))
    return w.op("And", seen, w.op("Greater", columns, first))


def _of_lengths(w: Writer, mask: ir.Value, batch: ir.Value, k: ir.Value) -> ir.Value:
    """[B, T]: whether a key is inside its text."""
    times = _times(w, mask, batch)
    places = w.unsqueezed(counted(w, w.size(k, 2)), 0)
    lengths = w.op("Cast", mask, to=_INT64)
    if times == 1:
        return w.op("Less", places, w.unsqueezed(lengths, 1))
    count = w.size(batch, 0)
    ends = w.op("Slice", lengths, w.integers(0), count, w.integers(0))
    kept = w.op("Less", places, w.unsqueezed(ends, 1))
    if times == 3:
        return kept
    starts = w.op("Slice", lengths, count, w.op("Shape", lengths), w.integers(0))
    return w.op("And", kept, w.op("GreaterOrEqual", places, w.unsqueezed(starts, 1)))


def _times(w: Writer, mask: ir.Value, batch: ir.Value) -> int:
    """Of a mask of one axis: 1 for lengths, 2 for ends and starts, 3 for lengths and what goes with them."""
    size, texts = (w.shape(mask) or (None,))[0], (w.shape(batch) or (None,))[0]
    if size is not None and size == texts:
        return 1
    if isinstance(size, int) and isinstance(texts, int):
        for times, wanted in ((2, 2 * texts), (3, 3 * texts + 2)):
            if size == wanted:
                return times
    raise NoSpellingError(
        f"its mask '{mask.name}' has {size} elements for {texts} texts: lengths cannot be told from ends and "
        "starts"
    )


def _kind(value: ir.Value) -> type[np.int32] | type[np.int64]:
    return np.int64 if value.dtype == ir.DataType.INT64 else np.int32
