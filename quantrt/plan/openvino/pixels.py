# SPDX-License-Identifier: Apache-2.0
"""Convolutions of maps of one pixel as products of matrices, which OpenVINO computes once for all images.

    [N, C, 1, 1] -> Conv 1x1 -> activation -> ...
    [N, C, 1, 1] -> Flatten -> Gemm -> activation -> Reshape -> ...

So are both layers of a squeeze-and-excite gate, and a layer between pooling and classifier. As convolutions
they read all of their weights once per image. MobileNetV3-Small for 64 x 64 pixels, OpenVINO 2026.4, one core
of an AMD EPYC: bf16 1.22 to 0.94 ms and int8 1.22 to 0.92 ms for 16 images, 0.177 to 0.173 and 0.175 to 0.164
for one; EfficientNet-B0, of which gates are a small part, is within 0.02 of what it was.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import (
    add_constant,
    all_names,
    constant_of,
    int_attribute,
    is_operator,
    take_name,
    take_place,
)
from quantrt.model.passes.remove_unused import remove_unused

__all__ = ["POINTWISE", "multiply_pixels"]

POINTWISE = (
    "Add",
    "Clip",
    "DequantizeLinear",
    "Div",
    "Elu",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Mul",
    "QuantizeLinear",
    "Relu",
    "Sigmoid",
    "Sub",
    "Tanh",
)
"""Operators that compute rows as they compute maps, where all else that they read is numbers."""

MAP_RANK = 4


def multiply_pixels(graph: ir.Model) -> None:
    """Compute convolutions of one pixel by products; in place."""
    if not any(_is_product(node) for node in graph.graph):
        return
    rows = _Rows(graph)
    for node in list(graph.graph):
        if _is_product(node):
            rows.multiply(node)
        elif is_operator(node, *POINTWISE):
            rows.carry(node)
    remove_unused(graph)


def _is_product(node: ir.Node) -> bool:
    """Whether a node convolves maps of one pixel with a 1x1 kernel of constant weights."""
    if not is_operator(node, "Conv") or int_attribute(node, "group", 1) != 1:
        return False
    pads = node.attributes.get("pads")
    if pads is not None and any(pads.as_ints()):
        return False
    weight = node.inputs[1]
    is_known = constant_of(weight) is not None or _decoder(weight) is not None
    return is_known and _is_pixel(weight) and _is_pixel(node.inputs[0])


def _is_pixel(value: ir.Value | None) -> bool:
    """Whether the last two of four sizes are known to be 1."""
    shape = value.shape if value is not None else None
    return shape is not None and len(shape) == MAP_RANK and shape[2] == shape[3] == 1


def _decoder(weight: ir.Value | None) -> ir.Node | None:
    """What makes a weight of constant codes, with one scale or one per output channel."""
    node = weight.producer() if weight is not None else None
    if node is None or not is_operator(node, "DequantizeLinear") or constant_of(node.inputs[0]) is None:
        return None
    scale = constant_of(node.inputs[1])
    if scale is None or scale.ndim > 1 or (scale.size > 1 and int_attribute(node, "axis", 1) != 0):
        return None
    return node


def _is_number(value: ir.Value | None) -> bool:
    """Whether an input is absent, or a constant of one element that adds no axes to rows."""
    array = constant_of(value)
    return value is None or (array is not None and array.size == 1 and array.ndim < MAP_RANK - 1)


class _Rows:
    """Maps of one pixel that are computed as rows [N, C]."""

    def __init__(self, graph: ir.Model) -> None:
        self._graph = graph
        self._of: dict[ir.Value, ir.Value] = {}  # rows by map
        self._taken = all_names(graph)

    def multiply(self, conv: ir.Node) -> None:
        """Put a product where a convolution is."""
        x, weight, *bias = conv.inputs
        assert x is not None and weight is not None
        inputs = [self._rows(x, conv), self._matrix(weight, conv), *bias]
        self._compute(conv, ir.node("Gemm", inputs, {"transB": 1}, name=conv.name))

    def carry(self, node: ir.Node) -> None:
        """Let a node compute rows where it reads some, and nothing else but numbers."""
        if all(value in self._of or _is_number(value) for value in node.inputs):
            inputs = [value if value is None else self._of.get(value, value) for value in node.inputs]
            attributes = list(node.attributes.values())
            self._compute(node, ir.Node("", node.op_type, inputs, attributes, num_outputs=1, name=node.name))

    def _compute(self, node: ir.Node, instead: ir.Node) -> None:
        """Put a node in the place of another; who reads a map gets one of the rows that it makes."""
        result, rows = node.outputs[0], instead.outputs[0]
        rows.name = take_name(f"{result.name}_rows", self._taken)
        rows.type, rows.shape = result.type, _flat(result)
        sizes = add_constant(
            self._graph, f"{result.name}_sizes", np.array([0, -1, 1, 1], np.int64), self._taken
        )
        back = ir.node("Reshape", [rows, sizes], name=take_name(f"{result.name}_map", self._taken))
        take_place(self._graph, node, [instead, back], back.outputs[0])
        self._of[back.outputs[0]] = rows

    def _rows(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        if value not in self._of:
            name = take_name(f"{value.name}_rows", self._taken)
            node = ir.node("Flatten", [value], name=name)
            rows = self._of[value] = node.outputs[0]
            rows.name, rows.type, rows.shape = name, value.type, _flat(value)
            self._graph.graph.insert_before(reader, node)
        return self._of[value]

    def _matrix(self, weight: ir.Value, reader: ir.Node) -> ir.Value:
        """A kernel [O, C, 1, 1] as [O, C]; codes stay codes."""
        decoder = _decoder(weight)
        source = weight if decoder is None else decoder.inputs[0]
        array = constant_of(source)
        assert source is not None and array is not None
        matrix = add_constant(
            self._graph, f"{source.name}_matrix", array.reshape(array.shape[:2]), self._taken
        )
        if decoder is None:
            return matrix
        attributes = list(decoder.attributes.values())
        inputs = [matrix, *decoder.inputs[1:]]
        name = take_name(f"{weight.name}_matrix", self._taken)
        node = ir.Node("", "DequantizeLinear", inputs, attributes, num_outputs=1, name=name)
        node.outputs[0].name, node.outputs[0].type = name, weight.type
        self._graph.graph.insert_before(reader, node)
        return node.outputs[0]


def _flat(value: ir.Value) -> ir.Shape | None:
    return None if value.shape is None else ir.Shape(value.shape[:2])
