# SPDX-License-Identifier: Apache-2.0
"""RotaryEmbedding of ONNX Runtime's own: pairs of elements are turned by angles of their places.

    y = x * cos[places] + turned(x) * sin[places]

turned swaps the two of each pair and negates what comes first: halves of a head, or neighbours where
`interleaved`. Source: onnxruntime, docs/ContribOperators.md; written as torch exports it.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of
from quantrt.model.contrib.attend import counted
from quantrt.model.contrib.writer import NoSpellingError, Writer

__all__ = ["Rotation", "rotated", "rotation", "spell_rotary_embedding"]

Rotation = tuple[ir.Value, ir.Value, int | None]
"""cos and sin at the places of a text, [B or 1, S, R], and how many elements R of a head they turn."""


def spell_rotary_embedding(w: Writer) -> None:
    """Write RotaryEmbedding."""
    if w.int_of("is_packed_batching"):
        raise NoSpellingError("it has is_packed_batching")
    if w.float_of("scale", 1.0) != 1.0:
        raise NoSpellingError("it has a scale")
    x, places = w.need(0, "input"), w.need(1, "position_ids")
    caches = w.need(2, "cos_cache"), w.need(3, "sin_cache")
    rank, is_interleaved = w.rank(x), bool(w.int_of("interleaved"))
    if rank not in (3, 4):
        raise NoSpellingError(f"its input has {rank} axes, not 3 or 4")
    if w.rank(places) == 1:
        length = w.size(x, 1 if rank == 3 else 2)
        places = w.unsqueezed(w.op("Add", counted(w, length), places), 0)
    cos, sin, count = rotation(w, caches, places, is_interleaved=is_interleaved)
    is_partial = bool(w.int_of("rotary_embedding_dim"))
    if rank == 4:
        turning = w.unsqueezed(cos, 1), w.unsqueezed(sin, 1), count
        w.put({0: rotated(w, x, turning, is_interleaved=is_interleaved, is_partial=is_partial)})
        return
    heads = w.int_of("num_heads")
    if is_partial and not heads:
        raise NoSpellingError("it has rotary_embedding_dim without num_heads")
    if not is_partial and count is None:
        raise NoSpellingError("the width of its cos_cache is not known")
    apart = w.reshaped(x, 0, 0, heads, -1) if heads else w.reshaped(x, 0, 0, -1, count or 0)
    turning = w.unsqueezed(cos, 2), w.unsqueezed(sin, 2), count
    y = rotated(w, apart, turning, is_interleaved=is_interleaved, is_partial=is_partial)
    w.put({0: w.reshaped(y, 0, 0, -1)})


def rotation(
    w: Writer, caches: tuple[ir.Value, ir.Value], places: ir.Value, *, is_interleaved: bool
) -> Rotation:
    """The cosines and sines for both elements of each pair.

    Args:
        caches: cos and sin [places, R / 2].
        places: [B or 1, S].
    """
    found = []
    for cache, what in zip(caches, ("cos", "sin"), strict=True):
        found.append(w.op("Gather", _both(w, cache, what, is_interleaved), places, axis=0))
    half = (w.shape(caches[0]) or (None,))[-1]
    return found[0], found[1], 2 * half if isinstance(half, int) else None


def rotated(w: Writer, x: ir.Value, turning: Rotation, *, is_interleaved: bool, is_partial: bool) -> ir.Value:
    """Heads of x turned; their elements behind the first R stay where `is_partial`."""
    cos, sin, count = turning
    if count is None:
        raise NoSpellingError("the width of its cos_cache is not known")
    head, rest = x, None
    if is_partial:
        end = np.iinfo(np.int64).max
        head, rest = (
            w.op("Slice", x, w.integers(a), w.integers(b), w.integers(-1))
            for a, b in ((0, count), (count, end))
        )
    turned = _neighbours(w, head) if is_interleaved else _halves(w, head, count)
    y = w.op("Add", w.op("Mul", head, cos), w.op("Mul", turned, sin))
    return y if rest is None else w.op("Concat", y, rest, axis=-1)


def _both(w: Writer, cache: ir.Value, what: str, is_interleaved: bool) -> ir.Value:
    """[places, R / 2] -> [places, R]: each number twice."""
    array = constant_of(cache)
    if array is not None:
        twice = np.repeat(array, 2, axis=-1) if is_interleaved else np.concatenate([array, array], axis=-1)
        return w.constant(twice, what)
    if not is_interleaved:
        return w.op("Concat", cache, cache, axis=-1)
    pair = w.op("Concat", *[w.unsqueezed(cache, -1)] * 2, axis=-1)
    return w.reshaped(pair, 0, -1)


def _halves(w: Writer, x: ir.Value, count: int) -> ir.Value:
    """(a, b) -> (-b, a)."""
    half = count // 2
    parts = [
        w.op("Slice", x, w.integers(a), w.integers(b), w.integers(-1)) for a, b in ((0, half), (half, count))
    ]
    return w.op("Concat", w.op("Neg", parts[1]), parts[0], axis=-1)


def _neighbours(w: Writer, x: ir.Value) -> ir.Value:
    """(a0, b0, a1, b1, ...) -> (-b0, a0, -b1, a1, ...)."""
    end = np.iinfo(np.int64).max
    evens, odds = (
        w.op("Slice", x, w.integers(start), w.integers(end), w.integers(-1), w.integers(2))
        for start in (0, 1)
    )
    pair = w.op("Concat", w.unsqueezed(w.op("Neg", odds), -1), w.unsqueezed(evens, -1), axis=-1)
    return w.op("Reshape", pair, w.op("Shape", x))
