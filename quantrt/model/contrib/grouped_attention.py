# SPDX-License-Identifier: Apache-2.0
"""GroupQueryAttention of ONNX Runtime's own: causal, fewer heads of k and v than of q, caches of past keys.

    q, k turned at their places where do_rotary; keys put behind those of earlier steps; then attention

A text has P = seqlens_k + 1 - S keys before the S new ones, none where S is total_sequence_length. Without
caches every text starts at its first row. With them the present is as long as the caches or the total, the
longer of both: row p of a text is its past's up to P, and the new ones' behind.

Source: onnxruntime, docs/ContribOperators.md, contrib_ops/cpu/bert/gqa_attention_base.h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.model.contrib.attend import Keys, attended, counted, head_size, heads_apart
from quantrt.model.contrib.norms import rms_of
from quantrt.model.contrib.rotary import rotated, rotation
from quantrt.model.contrib.writer import NoSpellingError, Writer

__all__ = ["spell_group_query_attention"]

_UNKNOWN = {11: "head_sink", 12: "k_scale", 13: "v_scale", 16: "query_seqlens"}
_UNKNOWN_FLAGS = ("kv_cache_bit_width", "qk_output", "sliding_window_cache", "smooth_softmax")
_PAST, _LENGTHS, _TOTAL, _COS, _PLACES, _BIAS, _NORMS = (3, 4), 5, 6, (7, 8), 9, 10, (14, 15)
_NORM_EPSILON = 1e-6  # the default of qk_norm_epsilon
_INT64 = int(ir.DataType.INT64)


@dataclass(frozen=True)
class _Texts:
    """What a step has of each text.

    Attributes:
        has_past: whether there are caches with something in them.
        past: keys of earlier steps, [B, 1]; None without caches.
    """

    has_past: bool
    past: ir.Value | None


def spell_group_query_attention(w: Writer) -> None:
    """Write GroupQueryAttention."""
    for index, name in _UNKNOWN.items():
        w.refuse(index, name)
    for name in _UNKNOWN_FLAGS:
        if w.int_of(name):
            raise NoSpellingError(f"it has {name}")
    if w.is_used(3):
        raise NoSpellingError("its output_qk is used")
    heads, shared = w.int_of("num_heads"), w.int_of("kv_num_heads")
    q, k, v, size = _operands(w, heads, shared)
    q, k = _normed(w, q, _NORMS[0], "q"), _normed(w, k, _NORMS[1], "k")
    texts = _texts(w, q)
    if w.int_of("do_rotary"):
        q, k = _rotated(w, q, k, texts, size)
    if texts.has_past:
        order = _order(w, k, texts)
        k, v = (
            _joined(w, w.need(index, "past"), new, order) for index, new in zip(_PAST, (k, v), strict=True)
        )
    results = {index: value for index, value in ((1, k), (2, v)) if w.is_used(index)}
    keys, values = (_repeated(w, value, heads // shared, shared) for value in (k, v))
    scale = w.float_of("scale", 0.0) or 1 / math.sqrt(size)
    w.put({0: attended(w, q, keys, values, scale=scale, keys=_keys(w, texts)), **results})


def _operands(w: Writer, heads: int, shared: int) -> tuple[ir.Value, ir.Value, ir.Value, int]:
    """q, k and v with heads apart, and the elements of a head; packed in one input, or each apart."""
    query, key, value = w.need(0, "query"), w.input(1), w.input(2)
    width = (w.shape(query) or (None,))[-1]
    if key is None or value is None:
        size = head_size(width, heads + 2 * shared, "queries, keys and values")
        parts = w.split(query, -1, heads * size, shared * size, shared * size)
    else:
        if not isinstance(width, int):
            keys = (w.shape(key) or (None,))[-1]
            width = keys * heads // shared if isinstance(keys, int) else None
        size = head_size(width, heads, "queries")
        parts = query, key, value
    q, k, v = (
        heads_apart(w, part, count) for part, count in zip(parts, (heads, shared, shared), strict=True)
    )
    return q, k, v, size


def _normed(w: Writer, x: ir.Value, index: int, which: str) -> ir.Value:
    """Every head of q or k through its RMS norm, where there is one."""
    gamma = w.input(index)
    if gamma is None:
        return x
    epsilon = w.float_of(f"{which}_norm_epsilon", w.float_of("qk_norm_epsilon", _NORM_EPSILON))
    return rms_of(w, x, gamma, epsilon)


def _texts(w: Writer, q: ir.Value) -> _Texts:
    past = w.input(_PAST[0])
    rows = None if past is None else (w.shape(past) or (None, None, None))[2]
    if past is None or rows == 0:
        return _Texts(has_past=False, past=None)
    length = w.size(q, 2)
    totals = w.unsqueezed(w.op("Cast", w.need(_LENGTHS, "seqlens_k"), to=_INT64), 1)
    one = w.constant(np.asarray(1, np.int64), "one")
    before = w.op("Sub", w.op("Add", w.reshaped(totals, -1, 1), one), length)
    is_first = w.op("Equal", _total(w), length)
    return _Texts(True, w.op("Where", is_first, w.constant(np.asarray(0, np.int64), "none"), before))


def _total(w: Writer) -> ir.Value:
    """total_sequence_length as a vector of one."""
    total = w.need(_TOTAL, "total_sequence_length")
    return w.reshaped(w.op("Cast", total, to=_INT64), 1)


def _rotated(w: Writer, q: ir.Value, k: ir.Value, texts: _Texts, size: int) -> tuple[ir.Value, ir.Value]:
    """Queries and keys turned at the places that are given, or behind the past."""
    caches, given = (w.need(_COS[0], "cos_cache"), w.need(_COS[1], "sin_cache")), w.input(_PLACES)
    is_interleaved = bool(w.int_of("rotary_interleaved"))
    places = w.unsqueezed(counted(w, w.size(q, 2)), 0)
    if given is not None:
        places = given
    elif texts.past is not None:
        places = w.op("Add", places, texts.past)
    cos, sin, count = rotation(w, caches, places, is_interleaved=is_interleaved)
    turning = w.unsqueezed(cos, 1), w.unsqueezed(sin, 1), count
    turned = [rotated(w, x, turning, is_interleaved=is_interleaved, is_partial=count != size) for x in (q, k)]
    return turned[0], turned[1]


def _order(w: Writer, k: ir.Value, texts: _Texts) -> tuple[ir.Value, ir.Value]:
    """[B, 1, T, 1]: which row of the cache with the new keys behind it is row p of the present; if any is."""
    rows, length = w.size(w.need(_PAST[0], "past_key"), 2), w.size(k, 2)
    places = w.unsqueezed(counted(w, w.op("Max", rows, _total(w))), 0)
    behind = w.op("Sub", places, texts.past)
    one, zero = (w.constant(np.asarray(number, np.int64), what) for number, what in ((1, "one"), (0, "none")))
    last = w.op("Sub", w.op("Add", rows, length), one)
    new = w.op("Min", w.op("Add", behind, rows), last)
    chosen = w.op("Where", w.op("Less", behind, zero), w.op("Min", places, last), new)
    return w.unsqueezed(chosen, 1, 3), w.unsqueezed(w.op("Less", behind, length), 1, 3)


def _joined(w: Writer, past: ir.Value, new: ir.Value, order: tuple[ir.Value, ir.Value]) -> ir.Value:
    """The rows of a cache and the new ones as `_order` says; zeros behind them."""
    chosen, is_row = order
    both = w.op("Concat", past, new, axis=2)
    shape = w.op("Shape", both)
    ends = [w.op("Gather", shape, w.integers(axis), axis=0) for axis in (0, 1, 3)]
    target = w.op("Concat", ends[0], ends[1], w.size(chosen, 2), ends[2], axis=0)
    rows = w.op("GatherElements", both, w.op("Expand", chosen, target), axis=2)
    return w.op("Where", is_row, rows, w.number(0.0, "empty"))


def _repeated(w: Writer, value: ir.Value, times: int, shared: int) -> ir.Value:
    """Every head of k or v once for each head of q that it serves, as torch exports it."""
    if times == 1:
        return value
    shape = w.op("Shape", value)
    parts = [w.op("Slice", shape, w.integers(a), w.integers(b), w.integers(0)) for a, b in ((0, 2), (2, 4))]
    target = w.op("Concat", parts[0], w.integers(times), parts[1], axis=0)
    spread = w.op("Expand", w.unsqueezed(value, 2), target)
    merged = w.op("Concat", w.size(value, 0), w.integers(shared * times), parts[1], axis=0)
    return w.op("Reshape", spread, merged)


def _keys(w: Writer, texts: _Texts) -> Keys:
    window, is_causal = w.int_of("local_window_size", -1), bool(w.int_of("causal", 1))
    if texts.has_past and not is_causal:
        raise NoSpellingError("it is not causal, and has a past")
    past = None if texts.past is None else w.unsqueezed(texts.past, 1, 2)
    return Keys(
        bias=w.input(_BIAS),
        is_causal=is_causal,
        past=past,
        window=window if window > 0 else None,
        softcap=w.float_of("softcap", 0.0),
    )
