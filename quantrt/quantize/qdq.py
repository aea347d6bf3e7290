# SPDX-License-Identifier: Apache-2.0
"""Write a quantized model as standard ONNX.

Weights become int8 initializers behind a DequantizeLinear; activations get QuantizeLinear ->
DequantizeLinear on the edges that read them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from quantrt.dtypes import INT32
from quantrt.ir.clone import clone
from quantrt.quantize.qparams import QParams, QuantizedTensor
from quantrt.quantize.quantized_model import QuantizedModel

__all__ = ["write"]


def write(quantized: QuantizedModel) -> ir.Model:
    """The standard ONNX Q/DQ model, which ONNX Runtime, OpenVINO and TensorRT load."""
    model = clone(quantized.graph)
    writer = _Writer(model)
    nodes = {node.name or "": node for node in model.graph}
    readers: dict[str, list[tuple[ir.Node, int]]] = {name: [] for name in quantized.activations}
    for (node, index), name in quantized.placement.uses.items():
        readers[name].append((nodes[node], index))
    for name, qparams in quantized.activations.items():
        rounded = writer.quantize_value(name, qparams, readers[name])
        if name in quantized.placement.outputs:
            writer.replace_output(name, rounded)
    for (node, index), tensor in {**quantized.weights, **quantized.biases}.items():
        writer.store_constant(nodes[node], index, tensor)
    model.graph.sort()
    for name in [name for name, value in model.graph.initializers.items() if not value.uses()]:
        if not model.graph.initializers[name].is_graph_output():
            del model.graph.initializers[name]
    return model


class _Writer:
    """Adds nodes and initializers to one cloned graph."""

    def __init__(self, model: ir.Model) -> None:
        self.graph = model.graph
        self.values = {v.name or "": v for v in self.graph.inputs}
        self.values |= {v.name or "": v for node in self.graph for v in node.outputs}
        self.taken = {name for part in model.graphs() for name in _names(part)}
        self.stored: dict[tuple[str, int | None, bytes], ir.Value] = {}

    def unique(self, name: str) -> str:
        """`name`, with underscores where a node or a value of any graph has it."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        """A new initializer, under the first free name."""
        name = self.unique(name)
        value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
        value.shape, value.dtype = ir.Shape(array.shape), ir.DataType.from_numpy(array.dtype)
        self.graph.initializers[name] = value
        return value

    def add(
        self, op_type: str, inputs: list[ir.Value], name: str, *, like: ir.Value, axis: int | None = None
    ) -> ir.Value:
        """A new node called `name` with one output shaped like `like`."""
        attributes = {} if axis is None else {"axis": axis}
        node = ir.node(op_type, inputs, attributes=attributes, name=self.unique(name))
        node.outputs[0].name = self.unique(f"{name}_output")
        node.outputs[0].shape, node.outputs[0].type = like.shape, like.type
        self.graph.append(node)
        return node.outputs[0]

    def quantize_value(self, name: str, qparams: QParams, readers: list[tuple[ir.Node, int]]) -> ir.Value:
        """Put QuantizeLinear -> DequantizeLinear on the edges that read a value; the rounded value."""
        value = self.values[name]
        grid = self.grid_of(name, qparams)
        codes = self.add("QuantizeLinear", [value, *grid], f"{name}_quantize", like=value)
        codes.type = ir.TensorType(ir.DataType[qparams.dtype.name.upper()])
        rounded = self.add("DequantizeLinear", [codes, *grid], f"{name}_dequantize", like=value)
        for node, index in readers:
            node.replace_input_with(index, rounded)
        return rounded

    def replace_output(self, name: str, rounded: ir.Value) -> None:
        """Make the rounded value the model's output called `name`."""
        value = self.values[name]
        value.name, rounded.name = self.unique(f"{name}_unrounded"), name
        for index, output in enumerate(self.graph.outputs):
            if output is value:
                self.graph.outputs[index] = rounded

    def store_constant(self, node: ir.Node, index: int, tensor: QuantizedTensor) -> None:
        """Replace one constant operand by codes and a DequantizeLinear; equal uses share one."""
        value = node.inputs[index]
        if value is None:
            return
        is_bias = tensor.qparams.dtype == INT32  # its grid depends on the node, a weight's does not
        name = f"{node.name}_bias" if is_bias else value.name or ""
        key = (name, tensor.qparams.axis, tensor.qparams.scale.tobytes())
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


def _names(graph: ir.Graph | ir.GraphView) -> Iterator[str]:
    """Names of the nodes and values of one graph."""
    yield from (value.name or "" for value in graph.inputs)
    yield from graph.initializers
    for node in graph:
        yield node.name or ""
        yield from (value.name or "" for value in node.outputs)
