# SPDX-License-Identifier: Apache-2.0
"""Weights that are codes for their size alone: ONNX Runtime makes floats of them once, as it loads.

    DequantizeLinear(codes, scale)  ->  Cast(codes) * scale

It folds the right side into a constant, of the same floats. The left one it leaves for kernels that read
codes; where there are none it computes it in every run, or rounds what a product reads to codes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import (
    add_constant,
    constant_of,
    int_attribute,
    is_operator,
    remove_constants,
    take_place,
    taken_names,
)
from quantrt.quantize.lint.pairs import MOVERS

__all__ = ["spell_stored_weights"]

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def spell_stored_weights(graph: ir.Model) -> None:
    """Write such weights so that they are folded; in place."""
    stored = list(_stored(graph.graph))
    taken = taken_names(graph) if stored else set()
    for node in stored:
        _spell(graph, node, taken)


def _stored(graph: ir.Graph) -> Iterator[ir.Node]:
    """Nodes that dequantize a constant for products of floats alone."""
    for node in graph:
        if (
            is_operator(node, "DequantizeLinear")
            and _is_plain(node)
            and not node.outputs[0].is_graph_output()
        ):
            readers = [(use.node, use.idx) for use in node.outputs[0].uses()]
            if readers and all(_is_float_product(reader, index) for reader, index in readers):
                yield node


def _is_plain(node: ir.Node) -> bool:
    """Whether codes, scale and zero point are constants: float32 scales for an axis or one, zeros of 0."""
    codes, scale = constant_of(node.inputs[0]), constant_of(node.inputs[1])
    point = node.inputs[2] if len(node.inputs) > 2 else None
    zero = constant_of(point)
    if codes is None or scale is None or int_attribute(node, "block_size", 0):
        return False
    is_centred = point is None or (zero is not None and not zero.any())
    return is_centred and codes.dtype == np.int8 and scale.dtype == np.float32 and scale.ndim < 2


def _is_float_product(node: ir.Node, index: int) -> bool:
    """Whether the operand of a node at `index` is multiplied with floats that nobody dequantizes."""
    return is_operator(node, *PRODUCTS) and index == 1 and not _is_dequantized(node.inputs[0])


def _is_dequantized(value: ir.Value | None) -> bool:
    """Whether a value is made of codes, which ONNX Runtime moves in the place of floats."""
    maker = None if value is None else value.producer()
    if maker is not None and is_operator(maker, *MOVERS):
        return any(map(_is_dequantized, maker.inputs))
    return is_operator(maker, "DequantizeLinear")


def _spell(graph: ir.Model, node: ir.Node, taken: set[str]) -> None:
    codes, scale = constant_of(node.inputs[0]), constant_of(node.inputs[1])
    if codes is None or scale is None:
        return
    name = node.name or ""
    along = [1] * codes.ndim
    if scale.ndim:
        along[int_attribute(node, "axis", 1)] = -1
    factors = add_constant(graph, f"{name}_factors", scale.reshape(along), taken)
    floats = ir.node("Cast", [node.inputs[0]], attributes={"to": ir.DataType.FLOAT}, name=f"{name}_cast")
    product = ir.node("Mul", [floats.outputs[0], factors], name=name)
    floats.outputs[0].name = f"{name}_floats"
    constants = tuple(node.inputs)
    take_place(graph, node, [floats, product], product.outputs[0])
    remove_constants(graph, constants)
