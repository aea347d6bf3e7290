# SPDX-License-Identifier: Apache-2.0
"""Run one node on constants, if its result is small enough."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from quantrt.ir.session import ORT_ERRORS
from quantrt.ir.shapes import ONNX_ERRORS

__all__ = ["evaluate_node"]

_FATAL = 4  # log severity: a node that cannot be evaluated stays as it is, and that is no error
_MAX_SHAPE_INPUT_BYTES = 1024


def evaluate_node(
    graph: ir.Model, node: ir.Node, inputs: Mapping[str, np.ndarray], *, max_bytes: int
) -> list[np.ndarray | None] | None:
    """The outputs of `node` on `inputs`, computed by ONNX Runtime; None for an output without a name.

    Returns:
        None when the outputs' sizes are not known beforehand or exceed `max_bytes` together, or when ONNX
        Runtime has no kernel for the node.
    """
    types = _output_types(graph, node, inputs)
    names = [value.name or "" for value in node.outputs if value.uses() or value.is_graph_output()]
    if types is None or any(name not in types for name in names):
        return None
    sizes = [_size_bytes(types[name]) for name in names]
    if any(size is None for size in sizes) or sum(size or 0 for size in sizes) > max_bytes:
        return None
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [ir.to_proto(node)],
            "constant",
            [onnx.helper.make_value_info(name, _type_of(array)) for name, array in inputs.items()],
            [onnx.helper.make_value_info(name, types[name]) for name in names],
        ),
        opset_imports=[onnx.helper.make_opsetid("", graph.opset_imports[""])],
        ir_version=max(graph.ir_version, 4),
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        results = dict(zip(names, session.run(names, dict(inputs)), strict=True))
    except ORT_ERRORS:
        return None
    return [results.get(value.name or "") for value in node.outputs]


def _output_types(
    graph: ir.Model, node: ir.Node, inputs: Mapping[str, np.ndarray]
) -> dict[str, onnx.TypeProto] | None:
    """Type and shape of each output as ONNX infers them from the input values."""
    try:
        schema = onnx.defs.get_schema(node.op_type, graph.opset_imports[""], "")
        small = {
            name: onnx.numpy_helper.from_array(array, name)
            for name, array in inputs.items()
            if array.nbytes <= _MAX_SHAPE_INPUT_BYTES
        }
        types = {name: _type_of(array) for name, array in inputs.items()}
        found: dict[str, onnx.TypeProto] = onnx.shape_inference.infer_node_outputs(
            schema, ir.to_proto(node), types, small, ir_version=graph.ir_version
        )
    except ONNX_ERRORS:
        return None
    return found


def _type_of(array: np.ndarray) -> onnx.TypeProto:
    elem_type = int(ir.DataType.from_numpy(array.dtype))
    return onnx.helper.make_tensor_type_proto(elem_type, array.shape)


def _size_bytes(type_proto: onnx.TypeProto) -> int | None:
    """Bytes of a value of this type; None when a size is unknown, or for text and sequences."""
    tensor = type_proto.tensor_type
    if not type_proto.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    if tensor.elem_type in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        return None
    dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
    if any(dim < 0 for dim in dims):
        return None
    return -(-math.prod(dims) * ir.DataType(tensor.elem_type).bitwidth // 8)
