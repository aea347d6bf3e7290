# SPDX-License-Identifier: Apache-2.0
"""Constant nodes become initializers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import register_constant

__all__ = ["lift_constants"]


def lift_constants(graph: ir.Model) -> int:
    """Turn Constant nodes of the main graph into initializers of the same name; how many.

    One whose value is a graph output stays: ONNX Runtime drops initializers that nothing reads.
    """
    count = 0
    for node in list(graph.graph):
        if (
            node.op_type != "Constant"
            or node.domain not in ("", "ai.onnx")
            or node.outputs[0].is_graph_output()
        ):
            continue
        tensor = _tensor(node)
        if tensor is None:
            continue
        value = node.outputs[0]
        name = value.name or node.op_type
        value.name = None  # frees the name
        value.replace_all_uses_with(register_constant(graph, name, tensor))
        graph.graph.remove(node, safe=True)
        count += 1
    return count


def _tensor(node: ir.Node) -> ir.TensorProtocol | None:
    if len(node.attributes) != 1:
        return None
    ((name, attribute),) = node.attributes.items()
    if attribute.is_ref():
        return None
    match name:
        case "value":
            return _own(attribute.as_tensor())
        case "value_int":
            return ir.Tensor(np.array(attribute.as_int(), np.int64))
        case "value_ints":
            return ir.Tensor(np.array(attribute.as_ints(), np.int64))
        case "value_float":
            return ir.Tensor(np.array(attribute.as_float(), np.float32))
        case "value_floats":
            return ir.Tensor(np.array(attribute.as_floats(), np.float32))
    return None  # text and sparse constants stay nodes


def _own(tensor: ir.TensorProtocol) -> ir.TensorProtocol | None:
    """A tensor on the same data whose name can be set without renaming that of the node's other clones."""
    if tensor.dtype == ir.DataType.STRING:
        return None
    return ir.Tensor(tensor.numpy(), tensor.dtype)
