# SPDX-License-Identifier: Apache-2.0
"""Codes that a model multiplies by scales with plain operators, written with DequantizeLinear.

    Cast(codes) * scale                                ->  DequantizeLinear(codes, scale)
    Cast(Gather(codes, i)) * Gather(scale[:, None], i)  ->  Gather(DequantizeLinear(codes, scale, axis=0), i)

So files and engines for ONNX Runtime have weights that no kernel reads as codes: see quantrt.ir.pick_codes
and quantrt.plan.onnxruntime.stored_weights.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, constant_of, int_attribute, is_operator, take_place
from quantrt.model.passes.remove_unused import remove_unused

__all__ = ["spell_picked_codes"]

MATRIX = 2


def spell_picked_codes(graph: ir.Model) -> int:
    """Rewrite every such product of a graph; how many. The last node of each keeps its name."""
    count = 0
    for node in list(graph.graph):
        codes = _codes_of(node)
        if codes is None:
            continue
        source = codes.producer()
        if source is None:
            count += _spell_weight(graph, node, codes)
        elif is_operator(source, "Gather"):
            count += _spell_rows(graph, node, source)
    if count:
        remove_unused(graph)
    return count


def _codes_of(node: ir.Node) -> ir.Value | None:
    """What a Mul has behind the Cast to float32 that is its first operand; None for another node."""
    first = node.inputs[0] if is_operator(node, "Mul") else None
    cast = first.producer() if first is not None else None
    if cast is None or not is_operator(cast, "Cast") or int_attribute(cast, "to", 0) != ir.DataType.FLOAT:
        return None
    return cast.inputs[0]


def _spell_weight(graph: ir.Model, node: ir.Node, codes: ir.Value) -> bool:
    array, factors = constant_of(codes), constant_of(node.inputs[1])
    if array is None or factors is None or array.dtype != np.int8 or factors.dtype != np.float32:
        return False
    long = [axis for axis, size in enumerate(factors.shape) if size != 1]
    if factors.ndim != array.ndim or len(long) > 1 or any(factors.shape[a] != array.shape[a] for a in long):
        return False
    axis = long[0] if long else None
    weight = _dequantize(graph, node.name or "", codes, factors, axis)
    take_place(graph, node, [weight], weight.outputs[0])
    return True


def _spell_rows(graph: ir.Model, node: ir.Node, picked: ir.Node) -> bool:
    other = node.inputs[1].producer() if node.inputs[1] is not None else None
    if other is None or not is_operator(other, "Gather") or other.inputs[1] is not picked.inputs[1]:
        return False
    codes, scales = constant_of(picked.inputs[0]), constant_of(other.inputs[0])
    if any(int_attribute(each, "axis", 0) not in (0, -MATRIX) for each in (picked, other)):
        return False
    if codes is None or scales is None or codes.dtype != np.int8 or scales.dtype != np.float32:
        return False
    if codes.ndim != MATRIX or scales.shape != (len(codes), 1) or picked.inputs[0] is None:
        return False
    name = node.name or ""
    table = _dequantize(graph, f"{name}.table", picked.inputs[0], scales, 0)
    table.outputs[0].name = f"{name}.floats"
    gather = ir.node("Gather", [table.outputs[0], picked.inputs[1]], attributes={"axis": 0}, name=name)
    gather.metadata_props.update(node.metadata_props)
    take_place(graph, node, [table, gather], gather.outputs[0])
    return True


def _dequantize(
    graph: ir.Model, name: str, codes: ir.Value, factors: np.ndarray, axis: int | None
) -> ir.Node:
    """A DequantizeLinear with the scales that `factors` are, along `axis` or one."""
    scale = add_constant(graph, f"{name}.scale", factors.reshape(() if axis is None else (-1,)))
    attributes = {} if axis is None else {"axis": axis}
    return ir.node("DequantizeLinear", [codes, scale], attributes=attributes, name=name)
