# SPDX-License-Identifier: Apache-2.0
"""EmbedLayerNormalization of ONNX Runtime's own, and the same of tables in codes.

    LayerNormalization(word[ids] + position[places] + segment[segments])
    mask_index: how many ones a row of the mask has

Of tables in codes (QEmbedLayerNormalization) rows are picked first, and made floats then.
Source: onnxruntime, docs/ContribOperators.md.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of
from quantrt.model.contrib.norms import SKIP_EPSILON
from quantrt.model.contrib.writer import NoSpellingError, Writer

__all__ = ["spell_embed_layer_norm", "spell_q_embed_layer_norm"]

_WORD, _POSITION, _SEGMENT, _GAMMA, _BETA, _MASK, _PLACES = range(2, 9)
_SCALE, _ZERO = 6, 11
"""How far behind its codes a scale and a zero point are among the inputs."""

_INT32 = int(ir.DataType.INT32)


def spell_embed_layer_norm(w: Writer) -> None:
    """Write EmbedLayerNormalization."""
    _spell(w, w.input(_PLACES), has_codes=False)


def spell_q_embed_layer_norm(w: Writer) -> None:
    """Write QEmbedLayerNormalization."""
    _spell(w, None, has_codes=True)


def _spell(w: Writer, places: ir.Value | None, *, has_codes: bool) -> None:
    ids, segments = w.need(0, "input_ids"), w.input(1)

    def floats(index: int, value: ir.Value) -> ir.Value:
        return _dequantized(w, index, value) if has_codes else value

    word = w.op("Gather", w.need(_WORD, "word_embedding"), ids, axis=0)
    total = w.op("Add", floats(_WORD, word), floats(_POSITION, _positions(w, ids, places)))
    if segments is not None:
        rows = w.op("Gather", w.need(_SEGMENT, "segment_embedding"), segments, axis=0)
        total = w.op("Add", total, floats(_SEGMENT, rows))
    gamma, beta = (floats(index, w.need(index, name)) for index, name in ((_GAMMA, "gamma"), (_BETA, "beta")))
    epsilon = w.float_of("epsilon", SKIP_EPSILON)
    results = {0: w.op("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon)}
    if w.is_used(1):
        results[1] = _lengths(w)
    if w.is_used(2):
        results[2] = total
    w.put(results)


def _lengths(w: Writer) -> ir.Value:
    """How many words the mask of each text keeps."""
    mask = w.input(_MASK)
    if mask is None:
        raise NoSpellingError("its mask_index is used, and it has no mask")
    kind = np.int64 if mask.dtype == ir.DataType.INT64 else np.int32
    kept = w.op("Equal", mask, w.constant(np.asarray(1, kind), "kept"))
    return w.op("ReduceSum", w.op("Cast", kept, to=_INT32), w.integers(1), keepdims=0)


def _positions(w: Writer, ids: ir.Value, places: ir.Value | None) -> ir.Value:
    """Rows of places: those that are given, or the first of the table."""
    table = w.need(_POSITION, "position_embedding")
    if places is not None:
        return w.op("Gather", table, places, axis=0)
    first = w.op("Slice", table, w.integers(0), w.size(ids, 1), w.integers(0))
    return w.unsqueezed(first, 0)


def _dequantized(w: Writer, index: int, codes: ir.Value) -> ir.Value:
    """Codes of an input as floats, on its one grid."""
    scale, zero = (_number(w, w.need(index + offset, "scale or zero point")) for offset in (_SCALE, _ZERO))
    return w.op("DequantizeLinear", codes, scale, zero)


def _number(w: Writer, value: ir.Value) -> ir.Value:
    """A constant of one element in the shape of a scalar."""
    array = constant_of(value)
    if array is None or array.ndim == 0 or array.size != 1:
        return value
    return w.constant(array.reshape(()), f"{value.name}_scalar")
