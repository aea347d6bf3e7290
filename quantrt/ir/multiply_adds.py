# SPDX-License-Identifier: Apache-2.0
"""How many multiply-adds a node does, counted from the shapes that are known of its values."""

from __future__ import annotations

from math import prod

import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator

__all__ = ["PRODUCTS", "multiply_adds"]

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators that multiply matrices, or slide them over pictures."""


def multiply_adds(node: ir.Node) -> int | None:
    """Multiply-adds of one of PRODUCTS; None where a shape, or the size of a weight, is not known.

    Free sizes, such as the batch, count as 1.
    """
    x, w, made = node.inputs[0], node.inputs[1], node.outputs[0]
    weight = constant_of(w)
    read, written = _sizes(x), _sizes(made)
    if read is None or written is None:
        return None
    if is_operator(node, "Conv"):  # every weight meets every place of the output
        return None if weight is None else weight.size * written[0] * prod(written[2:])
    if is_operator(node, "ConvTranspose"):
        return None if weight is None else weight.size * read[0] * prod(read[2:])
    # Gemm's first operand may be turned: either way the other one's rows are what is left of the weight.
    if is_operator(node, "Gemm"):
        return None if weight is None else weight.size * written[0]
    return prod(written) * read[-1] if read else None


def _sizes(value: ir.Value | None) -> tuple[int, ...] | None:
    if value is None or value.shape is None:
        return None
    return tuple(size if isinstance(size, int) else 1 for size in value.shape)
