# SPDX-License-Identifier: Apache-2.0
"""Which part of a model's products each of its nodes does, counted from shapes alone."""

from __future__ import annotations

from math import prod

import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator
from quantrt.model.model import Model

__all__ = ["work_shares"]

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def work_shares(model: Model) -> dict[str, float]:
    """By node, its multiply-adds over those of the whole model; free sizes, such as the batch, count as 1.

    Nodes that multiply nothing are not in it. Empty where a product's shape is not known.
    """
    counts: dict[str, int] = {}
    for node in model.graph.graph:
        if is_operator(node, *_PRODUCTS):
            count = _multiply_adds(node)
            if count is None:
                return {}
            counts[node.name or ""] = count
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()} if total else {}


def _multiply_adds(node: ir.Node) -> int | None:
    x, w, made = node.inputs[0], node.inputs[1], node.outputs[0]
    weight = constant_of(w)
    read, written = _sizes(x), _sizes(made)
    if read is None or written is None:
        return None
    if is_operator(node, "Conv"):  # every weight meets every place of the output
        return None if weight is None else weight.size * prod(written[2:])
    if is_operator(node, "ConvTranspose"):
        return None if weight is None else weight.size * prod(read[2:])
    # Gemm's first operand may be turned: either way the other one's rows are what is left of the weight.
    if is_operator(node, "Gemm"):
        return None if weight is None else weight.size * written[0]
    return prod(written) * read[-1] if read else None


def _sizes(value: ir.Value | None) -> tuple[int, ...] | None:
    if value is None or value.shape is None:
        return None
    return tuple(size if isinstance(size, int) else 1 for size in value.shape)
