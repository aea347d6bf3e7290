# SPDX-License-Identifier: Apache-2.0
"""Why no node of a model can be quantized: it was before, or its opset has no codes."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.quantize.target import Target
from quantrt.quantize.targets.opsets import why_no_codes

__all__ = ["is_quantized", "obstacle_of"]

QUANTIZED = (
    "QuantizeLinear",
    "DynamicQuantizeLinear",
    "QLinearConv",
    "QLinearMatMul",
    "ConvInteger",
    "MatMulInteger",
)
"""Operators of a model that was quantized before: its scales are somebody's intent."""


def obstacle_of(graph: ir.Model, target: Target) -> str | None:
    """Why no node of a model can be quantized for a target; None when some may."""
    if is_quantized(graph.graph):
        return "the model is quantized already"
    return why_no_codes(graph, target)


def is_quantized(graph: ir.Graph) -> bool:
    """Whether a graph was quantized before."""
    return any(is_operator(node, *QUANTIZED) for node in graph)
