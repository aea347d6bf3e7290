# SPDX-License-Identifier: Apache-2.0
"""A graph that takes or gives doubles, or has weights of them, as one in float32.

No library here has fast kernels for products of doubles, and none has codes for them: ONNX Runtime has no
Conv of doubles at all on a CPU. Other doubles stay, as in sizes and places that a model computes.
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.ir.shapes import infer_shapes
from quantrt.model.passes.types.widen_halves import TYPE_ATTRIBUTES, widen_halves

__all__ = ["doubles_of", "narrow_doubles"]

_PRODUCTS = (
    "Attention",
    "Conv",
    "ConvTranspose",
    "DeformConv",
    "Einsum",
    "GRU",
    "Gemm",
    "LSTM",
    "MatMul",
    "RNN",
)


def narrow_doubles(graph: ir.Model) -> int:
    """Make every double of a graph that has such a float32; how many constants, casts and ends changed."""
    return widen_halves(graph, (ir.DataType.DOUBLE,)) if doubles_of(graph) else 0


def doubles_of(graph: ir.Model) -> tuple[str, ...]:
    """Inputs and outputs that are doubles, and the first product with such weights, subgraphs included."""
    if not _has_doubles(graph):
        return ()
    infer_shapes(graph, follow_values=False)
    ends = (*graph.graph.inputs, *graph.graph.outputs)
    found = [f"'{value.name}'" for value in ends if value.dtype == ir.DataType.DOUBLE]
    for node in graph.graph.all_nodes():
        if is_operator(node, *_PRODUCTS) and any(_is_weight(value) for value in node.inputs):
            return (*found, f"'{node.name}' ({node.op_type})")
    return tuple(found)


def _is_weight(value: ir.Value | None) -> bool:
    """Whether a value is a constant matrix of doubles, or one of more axes."""
    if value is None or value.dtype != ir.DataType.DOUBLE or value.shape is None or len(value.shape) < 2:
        return False
    maker = value.producer()
    return value.const_value is not None or (maker is not None and is_operator(maker, "Constant"))


def _has_doubles(graph: ir.Model) -> bool:
    values = [value for part in graph.graphs() for value in (*part.inputs, *part.initializers.values())]
    attributes = (
        node.attributes[name]
        for node in graph.graph.all_nodes()
        for name in TYPE_ATTRIBUTES
        if name in node.attributes and not node.attributes[name].is_ref()
    )
    is_cast = any(
        attribute.type == ir.AttributeType.INT and attribute.as_int() == ir.DataType.DOUBLE
        for attribute in attributes
    )
    values.extend(graph.graph.outputs)
    return is_cast or any(value.dtype == ir.DataType.DOUBLE for value in values)
