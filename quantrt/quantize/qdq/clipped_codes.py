# SPDX-License-Identifier: Apache-2.0
"""An activation that clips, done on codes: Q(clip(x, lo, hi)) = clip(Q(x), Q(lo), Q(hi)), as Q is monotone.

ONNX Runtime leaves Relu or Clip before a QuantizeLinear out where the codes end at its bound. On a grid of
symmetric codes they do not, and the convolution before it would run in floats, for want of a QuantizeLinear
right behind it. Behind that, the activation is one pass over bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator, only_consumer
from quantrt.quantize.scales.qparams import QParams, quantize_array

__all__ = ["CLIPPING", "ClippedCodes", "clip_codes"]

CLIPPING = ("Relu", "Clip")


@dataclass(frozen=True)
class ClippedCodes:
    """What a clipping activation is on codes.

    Attributes:
        source: the value before the activations, which is quantized instead.
        lo, hi: the codes that bound it.
    """

    source: ir.Value
    lo: int
    hi: int


def clip_codes(value: ir.Value, qparams: QParams) -> ClippedCodes | None:
    """The activations that make `value`, on codes; None without any, or if the grid ends at their bounds."""
    lo, hi = qparams.qmin, qparams.qmax
    source = value
    while (node := source.producer()) is not None and (bounds := _bounds(node)) is not None:
        before = node.inputs[0]
        if before is None or only_consumer(before) is not node:
            break
        lo, hi = (
            int(np.clip(quantize_array(np.asarray(bound, np.float32), qparams), lo, hi)) for bound in bounds
        )
        source = before
    is_open = (lo, hi) == (qparams.qmin, qparams.qmax)
    return None if source is value or is_open else ClippedCodes(source, lo, hi)


def _bounds(node: ir.Node) -> tuple[float, float] | None:
    """Least and greatest result of a clipping activation with constant bounds; None for another node."""
    if is_operator(node, "Relu"):
        return 0.0, float("inf")
    if not is_operator(node, "Clip"):
        return None
    found = [-float("inf"), float("inf")]
    for place, value in enumerate(node.inputs[1:3]):
        bound = constant_of(value)
        if value is not None and (bound is None or bound.size != 1):
            return None
        if bound is not None:
            found[place] = float(bound.reshape(()))
    return (found[0], found[1]) if found[0] <= found[1] else None
