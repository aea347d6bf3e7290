# SPDX-License-Identifier: Apache-2.0
"""Write a quantized model as standard ONNX.

Weights become int8 initializers behind a DequantizeLinear; activations get QuantizeLinear ->
DequantizeLinear on the edges that read them.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.dtypes import INT32
from quantrt.ir.clone import clone
from quantrt.quantize.qparams import QParams, QuantizedTensor
from quantrt.quantize.quantized_model import QuantizedModel, Use

__all__ = ["write"]


def write(quantized: QuantizedModel) -> ir.Model:
    """The standard ONNX Q/DQ model, which ONNX Runtime, OpenVINO and TensorRT load."""
    model = clone(quantized.graph)
    writer = _Writer(model.graph)
    nodes = {node.name or "": node for node in model.graph}
    for name, qparams in quantized.activations.items():
        edges = [edge for edge, value in quantized.placement.uses.items() if value == name]
        writer.quantize_value(name, qparams, edges, nodes)
    for (node, index), tensor in {**quantized.weights, **quantized.biases}.items():
        writer.store_constant(nodes[node], index, tensor)
    model.graph.sort()
    for name in [name for name, value in model.graph.initializers.items() if not value.uses()]:
        if not model.graph.initializers[name].is_graph_output():
            del model.graph.initializers[name]
    return model


class _Writer:
    """Adds nodes and initializers to one cloned graph."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.values = {v.name or "": v for v in graph.inputs}
        self.values |= {v.name or "": v for node in graph for v in node.outputs}
        self.stored: dict[tuple[str, int | None], ir.Value] = {}

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        """A new initializer, under the first free name."""
        while name in self.graph.initializers or name in self.values:
            name += "_"
        value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
        value.shape, value.dtype = ir.Shape(array.shape), ir.DataType.from_numpy(array.dtype)
        self.graph.initializers[name] = value
        return value

    def add(
        self, op_type: str, inputs: list[ir.Value], name: str, *, like: ir.Value, axis: int | None = None
    ) -> ir.Value:
        """A new node called `name` with one output shaped like `like`."""
        attributes = {} if axis is None else {"axis": axis}
        node = ir.node(op_type, inputs, attributes=attributes, name=name)
        node.outputs[0].name = f"{name}_output"
        node.outputs[0].shape, node.outputs[0].type = like.shape, like.type
        self.graph.append(node)
        return node.outputs[0]

    def quantize_value(
        self, name: str, qparams: QParams, edges: list[Use], nodes: dict[str, ir.Node]
    ) -> None:
        """Put QuantizeLinear -> DequantizeLinear on the edges that read a value."""
        value = self.values[name]
        grid = self.grid_of(name, qparams)
        codes = self.add("QuantizeLinear", [value, *grid], f"{name}_quantize", like=value)
        codes.type = ir.TensorType(ir.DataType[qparams.dtype.name.upper()])
        rounded = self.add("DequantizeLinear", [codes, *grid], f"{name}_dequantize", like=value)
        for node, index in edges:
            nodes[node].replace_input_with(index, rounded)

    def store_constant(self, node: ir.Node, index: int, tensor: QuantizedTensor) -> None:
        """Replace one constant operand by codes and a DequantizeLinear; equal uses share one."""
        value = node.inputs[index]
        if value is None:
            return
        is_bias = tensor.qparams.dtype == INT32  # its grid depends on the node, a weight's does not
        name = f"{node.name}_bias" if is_bias else value.name or ""
        key = (name, tensor.qparams.axis)
        if key not in self.stored:
            codes = self.constant(f"{name}_quantized", tensor.codes)
            inputs = [codes, *self.grid_of(name, tensor.qparams)]
            self.stored[key] = self.add(
                "DequantizeLinear", inputs, f"{name}_dequantize", like=value, axis=tensor.qparams.axis
            )
        node.replace_input_with(index, self.stored[key])

    def grid_of(self, name: str, qparams: QParams) -> list[ir.Value]:
        """Initializers for scale and zero point."""
        zero_point = qparams.zero_point.astype(qparams.dtype.name)
        return [
            self.constant(f"{name}_scale", np.asarray(qparams.scale, np.float32)),
            self.constant(f"{name}_zero_point", zero_point),
        ]
