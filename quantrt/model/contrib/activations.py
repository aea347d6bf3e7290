# SPDX-License-Identifier: Apache-2.0
"""Activations of ONNX Runtime's own, and those that it fuses behind a product, as exporters spell them.

    Gelu, BiasGelu          0.5 x (1 + erf(x / sqrt(2)))                                  x + bias first
    FastGelu                0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))             x + bias first
    QuickGelu               x sigmoid(alpha x)
    BiasSplitGelu           left * Gelu(right) of the halves of x + bias
    BiasAdd                 x + bias + skip

Source: onnxruntime, docs/ContribOperators.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from quantrt.model.contrib.writer import NoSpellingError, Writer

__all__ = [
    "activated",
    "fast_gelu_of",
    "spell_bias_add",
    "spell_bias_split_gelu",
    "spell_fast_gelu",
    "spell_gelu",
    "spell_quick_gelu",
]

_CUBIC = 0.044715  # Hendrycks and Gimpel, "Gaussian Error Linear Units", section 2
_ALPHA = 1.702  # the same; the default of ONNX Runtime's QuickGelu


def spell_gelu(w: Writer) -> None:
    """Write Gelu or BiasGelu."""
    w.put({0: _gelu(w, _biased(w))})


def spell_fast_gelu(w: Writer) -> None:
    """Write FastGelu."""
    w.put({0: fast_gelu_of(w, _biased(w))})


def spell_quick_gelu(w: Writer) -> None:
    """Write QuickGelu."""
    x, alpha = w.need(0, "X"), w.float_of("alpha", _ALPHA)
    scaled = x if alpha == 1.0 else w.op("Mul", x, w.number(alpha, "alpha"))
    w.put({0: w.op("Mul", x, w.op("Sigmoid", scaled))})


def spell_bias_split_gelu(w: Writer) -> None:
    """Write BiasSplitGelu."""
    x, bias = w.need(0, "X"), w.need(1, "bias")
    width = (w.shape(bias) or w.shape(x) or (None,))[-1]
    if not isinstance(width, int) or width % 2:
        raise NoSpellingError(f"its channels are {width}, not an even number")
    left, right = w.split(w.op("Add", x, bias), -1, width // 2, width // 2)
    w.put({0: w.op("Mul", left, _gelu(w, right))})


def spell_bias_add(w: Writer) -> None:
    """Write BiasAdd."""
    w.put({0: w.op("Add", w.op("Add", w.need(0, "X"), w.need(1, "bias")), w.need(2, "skip"))})


def fast_gelu_of(w: Writer, x: ir.Value) -> ir.Value:
    """The tanh form."""
    cube = w.op("Mul", w.op("Pow", x, w.number(3.0, "three")), w.number(_CUBIC, "cubic"))
    inner = w.op("Mul", w.op("Add", x, cube), w.number(math.sqrt(2 / math.pi), "root"))
    outer = w.op("Add", w.op("Tanh", inner), w.number(1.0, "one"))
    return w.op("Mul", w.op("Mul", x, w.number(0.5, "half")), outer)


def activated(w: Writer, x: ir.Value, numbers: Mapping[str, float] | Sequence[float]) -> ir.Value:
    """What the attribute `activation` says, as fused products have it.

    Args:
        numbers: its parameters by ONNX's names of attributes, or in the order of `_PARAMETERS`.
    """
    attribute = w.node.attributes.get("activation")
    name = attribute.as_string() if attribute is not None else ""
    if not name:
        return x
    known = _PARAMETERS.get(name)
    if known is None:
        raise NoSpellingError(f"its activation is {name}")
    if not isinstance(numbers, Mapping):
        numbers = dict(zip(known, numbers, strict=False))
    if name == "Clip":
        ends = [w.number(numbers[end], end) if end in numbers else None for end in known]
        return w.op("Clip", x, *ends)
    return w.op(name, x, **{key: numbers[key] for key in known if key in numbers})


_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Tanh": (),
}


def _biased(w: Writer) -> ir.Value:
    x, bias = w.need(0, "X"), w.input(1)
    return x if bias is None else w.op("Add", x, bias)


def _gelu(w: Writer, x: ir.Value) -> ir.Value:
    erf = w.op("Erf", w.op("Div", x, w.number(math.sqrt(2), "root")))
    outer = w.op("Mul", x, w.op("Add", erf, w.number(1.0, "one")))
    return w.op("Mul", outer, w.number(0.5, "half"))
