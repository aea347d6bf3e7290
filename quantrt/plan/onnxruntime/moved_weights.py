# SPDX-License-Identifier: Apache-2.0
"""Weights that ONNX Runtime moves in place: they cannot be handed to a session as memory of ours.

Its transpose optimizer carries a Transpose through elementwise operators, transposing or reshaping their
constants under the names they had. `add_initializer` then puts the array back as it was: a [1, C, 1, 1] scale
on images whose channels have become the last axis does not fit any more, and a square one fits and is wrong
(ONNX Runtime 1.31, onnx_transpose_optimization.cc).
"""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["moved_weights"]

_LEFT_ALONE = frozenset(
    {
        "Attention",
        "Cast",
        "Conv",
        "ConvInteger",
        "ConvTranspose",
        "GRU",
        "Gather",
        "GatherBlockQuantized",
        "Gemm",
        "LSTM",
        "MatMul",
        "MatMulInteger",
        "MatMulNBits",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
        "RNN",
    }
)
"""Operators that no Transpose is carried through to their constants on a CPU; they read all large weights."""


def moved_weights(graph: ir.Model) -> frozenset[str]:
    """Names of initializers of the main graph that any other operator reads, with codes or as floats."""
    return frozenset(
        name
        for name, value in graph.graph.initializers.items()
        if not all(_is_left_alone(node) for node in value.consumers())
    )


def _is_left_alone(reader: ir.Node) -> bool:
    if reader.op_type == "DequantizeLinear":
        return all(_is_left_alone(node) for node in reader.outputs[0].consumers())
    return reader.op_type in _LEFT_ALONE
