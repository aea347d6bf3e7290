# SPDX-License-Identifier: Apache-2.0
"""Attention and MultiHeadAttention of ONNX Runtime's own.

    Attention(x, W, b, mask, past, bias)                     q, k, v = x W + b
    QAttention(codes, W, b, scales, mask, zero points)       the same of x and W in codes
    MultiHeadAttention(q, k, v, b, mask, bias, past_k, past_v)

W with its products becomes three, as exporters write them, where it is constant. Keys and values of earlier
steps are put before the new ones, and both are outputs together.

Source: onnxruntime, docs/ContribOperators.md. What has no spelling here: buffers that past and present share,
masks of four axes, beams, the scores as an output, rotation inside Attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of
from quantrt.model.contrib.attend import Keys, added, attended, head_size, heads_apart, padding_mask
from quantrt.model.contrib.writer import NoSpellingError, Writer

__all__ = ["spell_attention", "spell_multi_head_attention", "spell_q_attention"]


def spell_attention(w: Writer) -> None:
    """Write Attention."""
    w.refuse(6, "past_sequence_length")
    for name in ("do_rotary", "past_present_share_buffer"):
        if w.int_of(name):
            raise NoSpellingError(f"it has {name}")
    x, weight = w.need(0, "input"), w.need(1, "weights")
    _spell(w, x, weight, w.input(2), mask=w.input(3), past=w.input(4), bias=w.input(5))


def spell_q_attention(w: Writer) -> None:
    """Write QAttention: Attention of what its codes stand for."""
    scales = w.need(3, "input_scale"), w.need(4, "weight_scale")
    if w.int_of("do_rotary") or w.int_of("past_present_share_buffer"):
        raise NoSpellingError("it has do_rotary or past_present_share_buffer")
    x = _dequantized(w, w.need(0, "input"), scales[0], w.input(6))
    weight = _dequantized(w, w.need(1, "weight"), scales[1], w.input(7))
    weight.shape, weight.type = w.need(1, "weight").shape, ir.TensorType(ir.DataType.FLOAT)
    _spell(w, x, weight, w.input(2), mask=w.input(5), past=w.input(8), bias=None)


def spell_multi_head_attention(w: Writer) -> None:
    """Write MultiHeadAttention."""
    w.refuse(8, "past_sequence_length")
    w.refuse(9, "cache_indirection")
    if w.is_used(3):
        raise NoSpellingError("its output qk is used")
    heads, query = w.int_of("num_heads"), w.need(0, "query")
    q, k, v, width = _operands(w, query, heads)
    past = w.input(6), w.input(7)
    if past[0] is not None and past[1] is not None:
        k, v = (w.op("Concat", old, new, axis=2) for old, new in ((past[0], k), (past[1], v)))
    mask, bias = w.input(4), w.input(5)
    padding = None if mask is None else padding_mask(w, mask, query, k)
    is_causal = bool(w.int_of("unidirectional"))
    before = w.size(past[0], 2) if past[0] is not None and is_causal else None
    size = head_size(width, heads, "queries")
    keys = Keys(added(w, bias, padding), is_causal, before)
    results = {0: attended(w, q, k, v, scale=_scale(w, size), keys=keys)}
    results.update({index: value for index, value in ((1, k), (2, v)) if w.is_used(index)})
    w.put(results)


def _spell(
    w: Writer,
    x: ir.Value,
    weight: ir.Value,
    offset: ir.Value | None,
    *,
    mask: ir.Value | None,
    past: ir.Value | None,
    bias: ir.Value | None,
) -> None:
    """Attention whose q, k and v are a product."""
    heads, widths = w.int_of("num_heads"), _widths(w, weight)
    q, k, v = (heads_apart(w, part, heads) for part in _projected(w, x, weight, offset, widths))
    before: ir.Value | None = None
    results = {}
    if past is not None:
        old = [w.op("Squeeze", part, w.integers(0)) for part in w.split(past, 0, 1, 1)]
        before = w.size(old[0], 2)
        k, v = (w.op("Concat", *pair, axis=2) for pair in zip(old, (k, v), strict=True))
    if w.is_used(1):
        results[1] = w.op("Concat", w.unsqueezed(k, 0), w.unsqueezed(v, 0), axis=0)
    padding = None if mask is None else padding_mask(w, mask, w.need(0, "input"), k)
    is_causal = bool(w.int_of("unidirectional"))
    keys = Keys(added(w, bias, padding), is_causal, before if is_causal else None)
    size = head_size(widths[0], heads, "queries")
    w.put({0: attended(w, q, k, v, scale=_scale(w, size), keys=keys), **results})


def _scale(w: Writer, size: int) -> float:
    return w.float_of("scale", 0.0) or 1 / math.sqrt(size)


def _widths(w: Writer, weight: ir.Value) -> tuple[int, ...]:
    """Of q, k and v together."""
    given = w.node.attributes.get("qkv_hidden_sizes")
    if given is not None:
        return tuple(int(size) for size in given.as_ints())
    shape = w.shape(weight)
    width = None if shape is None else shape[-1]
    if not isinstance(width, int) or width % 3:
        raise NoSpellingError(f"its weights are {width} wide, not three times the same")
    return (width // 3,) * 3


def _projected(
    w: Writer, x: ir.Value, weight: ir.Value, offset: ir.Value | None, widths: Sequence[int]
) -> list[ir.Value]:
    """q, k and v: x W + b, cut where they meet."""
    array, numbers = constant_of(weight), constant_of(offset)
    ends = np.cumsum(widths)
    if array is None or (offset is not None and numbers is None):
        product = w.op("MatMul", x, weight)
        total = product if offset is None else w.op("Add", product, offset)
        return list(w.split(total, -1, *widths))
    parts = []
    for which, width, end in zip("qkv", widths, ends, strict=True):
        cut = slice(int(end) - width, int(end))
        product = w.op("MatMul", x, w.constant(array[:, cut], f"{which}_weight"))
        parts.append(
            product if numbers is None else w.op("Add", product, w.constant(numbers[cut], f"{which}_bias"))
        )
    return parts


def _dequantized(w: Writer, codes: ir.Value, scale: ir.Value, zero: ir.Value | None) -> ir.Value:
    """Codes on one grid, or on one for each column."""
    numbers = constant_of(scale)
    is_row = numbers is not None and numbers.size > 1
    triple = [codes, *(_flat(w, value, is_row) for value in (scale, zero))]
    return w.op("DequantizeLinear", *triple, **({"axis": 1} if is_row else {}))


def _flat(w: Writer, value: ir.Value | None, is_row: bool) -> ir.Value | None:
    """A scale or zero point as a vector, or as a scalar."""
    array = constant_of(value)
    if value is None or array is None or array.ndim == is_row:
        return value
    return w.constant(array.reshape(-1 if is_row else ()), f"{value.name}_flat")


def _operands(w: Writer, query: ir.Value, heads: int) -> tuple[ir.Value, ir.Value, ir.Value, object]:
    """q, k and v with heads apart, and the width of q: each apart, k and v packed, or all three."""
    key, value, offset = w.input(1), w.input(2), w.input(3)
    shape = w.shape(query) or ()
    if key is None:
        if len(shape) != 5:
            raise NoSpellingError(f"it has no key, and its query has {len(shape) or 'unknown'} axes, not 5")
        q, k, v = (_unpacked(w, part) for part in w.split(query, 3, 1, 1, 1))
        width = shape[4] * heads if isinstance(shape[4], int) else None
        return q, k, v, width
    q = _biased(w, query, heads, offset, 0)
    if value is None:
        k, v = (_unpacked(w, part) for part in w.split(key, 3, 1, 1))
    elif w.rank(key) == 4:
        k, v = key, value
    else:
        k, v = _biased(w, key, heads, offset, 1), _biased(w, value, heads, offset, 2)
    return q, k, v, _width(w, query, key, heads)


def _width(w: Writer, query: ir.Value, key: ir.Value, heads: int) -> object:
    """Of q: as declared, or as the heads of keys say."""
    found = (w.shape(query) or (None,))[-1]
    keys = w.shape(key) or ()
    if isinstance(found, int):
        return found
    if len(keys) == 3:
        return keys[-1]
    size = keys[-1] if len(keys) >= 4 else None
    return size * heads if isinstance(size, int) else None


def _unpacked(w: Writer, part: ir.Value) -> ir.Value:
    """[B, L, N, 1, D] -> [B, N, L, D]."""
    return w.op("Transpose", w.op("Squeeze", part, w.integers(3)), perm=(0, 2, 1, 3))


def _biased(w: Writer, value: ir.Value, heads: int, offset: ir.Value | None, place: int) -> ir.Value:
    """q, k or v with its part of the bias, heads apart."""
    if offset is None:
        return heads_apart(w, value, heads)
    width = (w.shape(value) or (None,))[-1]
    total = (w.shape(offset) or (None,))[0]
    if not isinstance(width, int) or not isinstance(total, int):
        raise NoSpellingError("it has a bias, and the width of its queries, keys or values is not known")
    start = place * width if place < 2 else total - width
    part = w.op("Slice", offset, w.integers(start), w.integers(start + width), w.integers(0))
    return heads_apart(w, w.op("Add", value, part), heads)
