# SPDX-License-Identifier: Apache-2.0
"""Rows that lie in a map, as one list of them, where they are normalized and multiplied.

    [N, H, W, C] -> LayerNormalization -> MatMul -> Add -> Gelu -> ...
    [N, H, W, C] -> Reshape [N, H W, C] -> LayerNormalization -> MatMul -> Add -> Gelu -> ... -> Reshape

OpenVINO computes a product's bias, activation and quantization in the product's kernel only up to three axes,
and has a kernel that normalizes the last axis only up to there: of four it makes one kernel after the other.
ConvNeXt-T in int8 takes 18.5 ms so, and 24.6 as NNCF leaves it (docs/results/zoo-peers-cpu.md).
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.model.passes.remove_unused import remove_unused
from quantrt.plan.openvino.maps_as_rows import MapsAsRows
from quantrt.plan.openvino.tokens import known_sizes

__all__ = ["list_rows"]

LIST_RANK = 3


def list_rows(graph: ir.Model) -> None:
    """Make lists of rows in maps where they are normalized and multiplied; in place."""
    if not any(_starts(node) for node in graph.graph):
        return
    maps = MapsAsRows(graph, _sizes, keeps_last=True)
    for node in list(graph.graph):
        if _starts(node):
            _begin(maps, node)
        else:
            maps.carry(node)
    remove_unused(graph)


def _starts(node: ir.Node) -> bool:
    """Whether a node multiplies or normalizes rows of maps whose size is known."""
    if not node.inputs or _sizes(node.inputs[0]) is None or _sizes(node.outputs[0]) is None:
        return False
    if is_operator(node, "LayerNormalization"):
        rank = len(node.outputs[0].shape or ())
        return int_attribute(node, "axis", -1) in (-1, rank - 1) and len(node.outputs) == 1
    return is_operator(node, "MatMul") and _is_matrix(node.inputs[1])


def _sizes(value: ir.Value | None) -> tuple[list[int], list[int]] | None:
    """Of the list of a map's rows, and of the map; None where one behind the first is not known."""
    sizes = known_sizes(value)
    if sizes is None or len(sizes) < LIST_RANK:
        return None
    return [0, -1, sizes[-1]], [0, *sizes]


def _is_matrix(value: ir.Value | None) -> bool:
    """Whether a value is constant, in codes or not, and has two axes."""
    maker = None if value is None else value.producer()
    source = maker.inputs[0] if maker is not None and is_operator(maker, "DequantizeLinear") else value
    array = constant_of(source)
    return array is not None and array.ndim == LIST_RANK - 1


def _begin(maps: MapsAsRows, node: ir.Node) -> None:
    """Let a node compute a list, whatever makes what it reads."""
    first, *others = node.inputs
    assert first is not None
    attributes = dict(node.attributes)
    if is_operator(node, "LayerNormalization"):
        attributes["axis"] = ir.AttrInt64("axis", -1)
    maps.compute(node, node.op_type, [maps.rows(first, node), *others], list(attributes.values()))
