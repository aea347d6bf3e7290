# SPDX-License-Identifier: Apache-2.0
"""A graph whose products are in float64 as one in float32.

No library here has fast kernels for products of doubles, and none has codes for them: ONNX Runtime has no
Conv of doubles at all on a CPU. Doubles around products of floats, as in sizes that a model computes, stay.
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.ir.shapes import infer_shapes
from quantrt.model.passes.widen_halves import TYPE_ATTRIBUTES, widen_halves

__all__ = ["double_product", "narrow_doubles"]

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
    """Make every double of a graph that has such a product a float32; how many constants and casts changed.

    Inputs and outputs of the model keep their types, behind a Cast.
    """
    return 0 if double_product(graph) is None else widen_halves(graph, (ir.DataType.DOUBLE,))


def double_product(graph: ir.Model) -> ir.Node | None:
    """The first product that reads doubles, subgraphs included; None where there is none."""
    if not _has_doubles(graph):
        return None
    infer_shapes(graph, follow_values=False)
    for node in graph.graph.all_nodes():
        kinds = {value.dtype for value in node.inputs if value is not None}
        if is_operator(node, *_PRODUCTS) and ir.DataType.DOUBLE in kinds:
            return node
    return None


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
    return is_cast or any(value.dtype == ir.DataType.DOUBLE for value in values)
