# SPDX-License-Identifier: Apache-2.0
"""Which opsets can say that a value is quantized."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.model.passes.spell.raise_opset import why_not_raised
from quantrt.quantize.target import Target

__all__ = ["QDQ_OPSET", "why_no_codes"]

QDQ_OPSET = 10
"""The first opset with QuantizeLinear."""


def why_no_codes(graph: ir.Model, target: Target) -> str | None:
    """Why a model's opset has no codes of a target's type, and cannot be raised; None when it has them."""
    if target.activation.dtype.is_float:
        return why_not_raised(graph)
    opset = graph.opset_imports.get("", QDQ_OPSET)
    return f"opset {opset} has no QuantizeLinear" if opset < QDQ_OPSET else None
