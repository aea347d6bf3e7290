# SPDX-License-Identifier: Apache-2.0
"""Products that read a few numbers for each row: coordinates of points, boxes and times.

A picture of 1024 pixels has 256 places in 8 bits, and codes of four numbers or fewer save nothing: tensor
cores multiply 32 at a time. What is computed of places, such as their sines, is lost with them, as in a SAM's
mask decoder (docs/results/zoo-h200.md).
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import int_attribute, is_operator

__all__ = ["MOST_COORDINATES", "why_not_coordinates"]

MOST_COORDINATES = 4
"""That a product with a weight reads for each row: the numbers of a box, the axes of a film."""


def why_not_coordinates(node: ir.Node) -> str | None:
    """Why a product with a constant of MOST_COORDINATES rows or fewer stays float; None for others."""
    if not is_operator(node, "MatMul", "Gemm"):
        return None
    weight = node.inputs[1]
    if weight is None or weight.const_value is None or len(weight.const_value.shape) != 2:
        return None
    is_transposed = node.op_type == "Gemm" and int_attribute(node, "transB", 0)
    rows = weight.const_value.shape.numpy()[1 if is_transposed else 0]
    if rows > MOST_COORDINATES:
        return None
    return f"it reads {rows} numbers for each row, like coordinates: nothing to gain"
