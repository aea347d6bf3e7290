# SPDX-License-Identifier: Apache-2.0
"""Convolutions of maps of one pixel as products of matrices, which OpenVINO computes once for all images.

    [N, C, 1, 1] -> Conv 1x1 -> activation -> ...
    [N, C, 1, 1] -> Reshape -> Gemm -> activation -> Reshape -> ...

So are both layers of a squeeze-and-excite gate, and a layer between pooling and classifier. As convolutions
they read all of their weights once per image.
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import add_constant, constant_of, int_attribute, is_operator, take_name
from quantrt.model.passes.remove_unused import remove_unused
from quantrt.plan.openvino.maps_as_rows import MapsAsRows

__all__ = ["multiply_pixels"]

MAP_RANK = 4


def multiply_pixels(graph: ir.Model) -> None:
    """Compute convolutions of one pixel by products; in place."""
    if not any(_is_product(node) for node in graph.graph):
        return
    maps = MapsAsRows(graph, lambda _: ((0, -1), (0, -1, 1, 1)), keeps_last=False)
    for node in list(graph.graph):
        if _is_product(node):
            _multiply(maps, node)
        else:
            maps.carry(node)
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


def _multiply(maps: MapsAsRows, conv: ir.Node) -> None:
    """Put a product where a convolution is."""
    x, weight, *bias = conv.inputs
    assert x is not None and weight is not None
    inputs = [maps.rows(x, conv), _matrix(maps, weight, conv), *bias]
    maps.compute(conv, "Gemm", inputs, [ir.AttrInt64("transB", 1)])


def _matrix(maps: MapsAsRows, weight: ir.Value, reader: ir.Node) -> ir.Value:
    """A kernel [O, C, 1, 1] as [O, C]; codes stay codes."""
    decoder = _decoder(weight)
    source = weight if decoder is None else decoder.inputs[0]
    array = constant_of(source)
    assert source is not None and array is not None
    matrix = add_constant(maps.graph, f"{source.name}_matrix", array.reshape(array.shape[:2]), maps.taken)
    if decoder is None:
        return matrix
    attributes = list(decoder.attributes.values())
    inputs = [matrix, *decoder.inputs[1:]]
    name = take_name(f"{weight.name}_matrix", maps.taken)
    node = ir.Node("", "DequantizeLinear", inputs, attributes, num_outputs=1, name=name)
    node.outputs[0].name, node.outputs[0].type = name, weight.type
    maps.graph.graph.insert_before(reader, node)
    return node.outputs[0]
