# SPDX-License-Identifier: Apache-2.0
"""Inputs that decide the shape of a result rather than its values."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.operators.numbers import NUMBERS

__all__ = ["VALUE_READERS", "parameters_of"]

_COUNTED = ("ConcatFromSequence", "NonMaxSuppression")
"""Operators whose results have as many elements as values say, whatever their numbers are."""

PARAMETERS: dict[str, tuple[int, ...]] = {
    **{op_type: places for op_type, places in NUMBERS.items() if op_type not in _COUNTED},
    "CenterCropPad": (1,),
    "CumProd": (1,),
    "GRU": (4,),
    "LSTM": (4,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "Pad": (1, 2, 3),
    "RNN": (4,),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
}
"""Inputs that decide the shape of the result, or that the operator needs as plain numbers."""

VALUE_READERS = (
    "Compress",
    "If",
    "Loop",
    "MaxRoiPool",
    "NonMaxSuppression",
    "NonZero",
    "RoiAlign",
    "Scan",
    "Unique",
)
"""Operators whose result has a shape that depends on values, or that steer the host by them."""


def parameters_of(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node that PARAMETERS names."""
    places = PARAMETERS.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ()
    values = [node.inputs[place] for place in places if place < len(node.inputs)]
    return [value for value in values if value is not None]
