# SPDX-License-Identifier: Apache-2.0
"""Normalizations of ONNX Runtime's own.

    SkipLayerNormalization              LayerNormalization(x + skip + bias); the sum is an output too
    SkipSimplifiedLayerNormalization    the same without mean and beta
    SimplifiedLayerNormalization        x / sqrt(mean(x^2) + epsilon) * gamma
    GroupNorm, SkipGroupNorm            per group of channels, channels last; then SiLU where told

Source: onnxruntime, docs/ContribOperators.md; SimplifiedLayerNormalization is in the default domain there.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of
from quantrt.model.contrib.writer import NoSpellingError, Writer

__all__ = [
    "SKIP_EPSILON",
    "rms_of",
    "spell_group_norm",
    "spell_simplified_layer_norm",
    "spell_skip_group_norm",
    "spell_skip_layer_norm",
    "spell_skip_simplified_layer_norm",
]

SKIP_EPSILON = 1e-12  # the default of ONNX Runtime's fused norms
_EPSILON = 1e-5  # of its SimplifiedLayerNormalization and GroupNorm
_SUM = 3
"""The output of a Skip...Normalization that is what is normalized."""


def spell_skip_layer_norm(w: Writer) -> None:
    """Write SkipLayerNormalization."""
    total = _skipped(w, bias=4)
    gamma, beta = w.need(2, "gamma"), w.input(3)
    operands = [total, gamma] if beta is None else [total, gamma, beta]
    y = w.op("LayerNormalization", *operands, axis=-1, epsilon=w.float_of("epsilon", SKIP_EPSILON))
    w.put({0: y, **({_SUM: total} if w.is_used(_SUM) else {})})


def spell_skip_simplified_layer_norm(w: Writer) -> None:
    """Write SkipSimplifiedLayerNormalization."""
    total = _skipped(w, bias=3)
    y = rms_of(w, total, w.need(2, "gamma"), w.float_of("epsilon", SKIP_EPSILON))
    w.put({0: y, **({_SUM: total} if w.is_used(_SUM) else {})})


def spell_simplified_layer_norm(w: Writer) -> None:
    """Write SimplifiedLayerNormalization."""
    x, axis = w.need(0, "X"), w.int_of("axis", -1)
    if w.is_used(1):
        raise NoSpellingError("its second output is used")
    if axis != -1 and axis != w.rank(x) - 1:
        raise NoSpellingError(f"its axis is {axis}, not the last")
    w.put({0: rms_of(w, x, w.need(1, "scale"), w.float_of("epsilon", _EPSILON))})


def spell_group_norm(w: Writer) -> None:
    """Write GroupNorm."""
    w.put({0: _as_given(w, _grouped(w, _image(w, w.need(0, "X"))))})


def spell_skip_group_norm(w: Writer) -> None:
    """Write SkipGroupNorm."""
    skip, bias = w.need(3, "skip"), w.input(4)
    image = _image(w, w.need(0, "X"))
    # [N, C] is for all pixels.
    total = w.op("Add", image, w.unsqueezed(skip, 2, 3) if w.rank(skip) == 2 else _image(w, skip))
    if bias is not None:
        total = w.op("Add", total, _channels(w, bias, "bias"))
    summed = {1: _as_given(w, total)} if w.is_used(1) else {}
    w.put({0: _as_given(w, _grouped(w, total)), **summed})


def rms_of(w: Writer, x: ir.Value, gamma: ir.Value, epsilon: float) -> ir.Value:
    """RMS norm: x / sqrt(mean(x^2) + epsilon) * gamma along the last axis, as torch exports it."""
    square = w.op("Pow", x, w.number(2.0, "two"))
    mean = _mean(w, square)
    root = w.op("Sqrt", w.op("Add", mean, w.number(epsilon, "epsilon")))
    return w.op("Mul", w.op("Mul", x, w.op("Div", w.number(1.0, "one"), root)), gamma)


_AXES_OPSET = 18
"""The first opset whose ReduceMean has its axes as an input."""


def _mean(w: Writer, x: ir.Value) -> ir.Value:
    if w.graph.opset_imports.get("", 0) >= _AXES_OPSET:
        return w.op("ReduceMean", x, w.integers(-1), keepdims=1)
    return w.op("ReduceMean", x, axes=[-1], keepdims=1)


def _skipped(w: Writer, bias: int) -> ir.Value:
    if w.is_used(1) or w.is_used(2):
        raise NoSpellingError("its mean or its deviation is used, which ONNX Runtime computes on no CPU")
    total = w.op("Add", w.need(0, "input"), w.need(1, "skip"))
    extra = w.input(bias)
    return total if extra is None else w.op("Add", total, extra)


def _image(w: Writer, x: ir.Value) -> ir.Value:
    """An image with its channels first."""
    if w.rank(x) != 4:
        raise NoSpellingError(f"'{x.name}' does not have four axes")
    return w.op("Transpose", x, perm=(0, 3, 1, 2)) if w.int_of("channels_last", 1) else x


def _as_given(w: Writer, image: ir.Value) -> ir.Value:
    """An image with channels first in the layout of the node."""
    return w.op("Transpose", image, perm=(0, 2, 3, 1)) if w.int_of("channels_last", 1) else image


def _grouped(w: Writer, image: ir.Value) -> ir.Value:
    """GroupNorm of an image with channels first: InstanceNormalization over groups, as torch exports it."""
    groups = w.int_of("groups")
    ones, zeros = (
        w.constant(np.full(groups, n, np.float32), what) for n, what in ((1, "ones"), (0, "zeros"))
    )
    epsilon = w.float_of("epsilon", _EPSILON)
    norm = w.op("InstanceNormalization", w.reshaped(image, 0, groups, -1), ones, zeros, epsilon=epsilon)
    y = w.op("Reshape", norm, w.op("Shape", image))
    y = w.op("Mul", y, _channels(w, w.need(1, "gamma"), "gamma"))
    y = w.op("Add", y, _channels(w, w.need(2, "beta"), "beta"))
    return w.op("Mul", y, w.op("Sigmoid", y)) if w.int_of("activation") else y


def _channels(w: Writer, value: ir.Value, what: str) -> ir.Value:
    """[C] -> [C, 1, 1]."""
    array = constant_of(value)
    if array is not None:
        return w.constant(array.reshape(-1, 1, 1), what)
    return w.unsqueezed(value, 1, 2)
