# SPDX-License-Identifier: Apache-2.0
"""Products left float stay float in every session of ONNX Runtime: what they read has a scale per channel.

    codes -> DequantizeLinear(s, z)                  -> product      int8, whatever was meant
    codes -> DequantizeLinear([s, s, ...], [z, ...]) -> product      float

The values are the same to the last bit. The optimizer that makes such products int8 (see
`quantrt.quantize.qdq.requantized`) takes codes with one scale alone.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import add_constant, constant_of, free_name, int_attribute, is_operator
from quantrt.model.passes.remove_unused import remove_unused
from quantrt.quantize.qdq.requantized import requantized_products

__all__ = ["give_own_scales"]

AXIS_OPSET = 13
"""The first opset whose DequantizeLinear has a scale per channel."""


def give_own_scales(graph: ir.Model) -> ir.Model:
    """The graph, or a copy of it in which float products between codes stay float.

    One that reads a single channel stays as it is: there is no other scale than that of all.
    """
    names = requantized_products(graph)
    if not names or graph.opset_imports.get("", 0) < AXIS_OPSET:
        return graph
    made = clone(graph)
    own: dict[tuple[str, int, int], ir.Value] = {}
    for node in [node for node in made.graph if node.name in names]:
        source, axis, channels = node.inputs[0], _channel_axis(node), _channels(node)
        maker = source.producer() if source is not None else None
        if source is None or maker is None or channels == 1:
            continue
        key = (source.name or "", axis, channels)
        if key not in own:
            own[key] = _per_channel(made, maker, axis, channels)
        node.replace_input_with(0, own[key])
    remove_unused(made)
    return made


def _channel_axis(node: ir.Node) -> int:
    return 0 if is_operator(node, "Gemm") and int_attribute(node, "transA", 0) else 1


def _channels(node: ir.Node) -> int:
    """Of what a product reads, by its weight."""
    weight = constant_of(node.inputs[1])
    assert weight is not None  # or it were none of those
    if is_operator(node, "Conv"):
        return int(weight.shape[1]) * int_attribute(node, "group", 1)
    is_turned = is_operator(node, "Gemm") and int_attribute(node, "transB", 0)
    return int(weight.shape[1 if is_turned else 0])


def _per_channel(graph: ir.Model, maker: ir.Node, axis: int, channels: int) -> ir.Value:
    """The values of a DequantizeLinear once more, by one with a scale for each channel."""
    source = maker.outputs[0]
    grid = []
    for value in maker.inputs[1:]:
        single = constant_of(value)
        if value is not None and single is not None:  # a zero point may be left out
            repeated = np.full(channels, single.reshape(-1)[0], single.dtype)
            grid.append(add_constant(graph, f"{value.name}_channels", repeated))
    name = free_name(graph, f"{maker.name}_channels")
    node = ir.node("DequantizeLinear", [maker.inputs[0], *grid], attributes={"axis": axis}, name=name)
    made = node.outputs[0]
    made.name = free_name(graph, f"{source.name}_channels")
    made.shape, made.type = source.shape, source.type
    graph.graph.insert_after(maker, node)
    return made
