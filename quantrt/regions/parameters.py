# SPDX-License-Identifier: Apache-2.0
"""Inputs that decide the shape of a result rather than its values."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["VALUE_READERS", "parameters_of"]

PARAMETERS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "GRU": (4,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "LSTM": (4,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "RNN": (4,),
    "Range": (0, 1, 2),
    "ReduceL1": (1,),
    "ReduceL2": (1,),
    "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceProd": (1,),
    "ReduceSum": (1,),
    "ReduceSumSquare": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
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
