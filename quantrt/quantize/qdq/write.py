# SPDX-License-Identifier: Apache-2.0
"""Write a quantized model as standard ONNX.

Weights become initializers of 8 bits behind a DequantizeLinear; activations get QuantizeLinear ->
DequantizeLinear on the edges that read them. A graph with float8 codes has opset 19 at least.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx_ir as ir

from quantrt.dtypes import INT32
from quantrt.ir.clone import clone
from quantrt.ir.edit import is_operator, take_name
from quantrt.model.passes.spell.raise_opset import raise_opset
from quantrt.quantize.qdq.clipped_codes import CLIPPING, clip_codes
from quantrt.quantize.qdq.per_token import spell_per_token
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.scales.qparams import QParams, QuantizedTensor

__all__ = ["write"]

CLIP_CODES_OPSET = 12
"""The first opset whose Clip takes 8-bit integers."""


def write(quantized: QuantizedModel) -> ir.Model:
    """The standard ONNX Q/DQ model, which ONNX Runtime, OpenVINO and TensorRT load."""
    quantized = spell_per_token(quantized)
    model = clone(quantized.graph)
    if any(grid.dtype.is_float for grid in quantized.activations.values()):
        raise_opset(model)
    writer = _Writer(model, clips_codes=quantized.target.quantizes_outputs)
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
    _remove_bypassed(model.graph, writer.bypassed)
    model.graph.sort()
    for name in [name for name, value in model.graph.initializers.items() if not value.uses()]:
        if not model.graph.initializers[name].is_graph_output():
            del model.graph.initializers[name]
    return model


def _remove_bypassed(graph: ir.Graph, values: Iterable[ir.Value]) -> None:
    """Remove the activations that make these values, where nothing reads them any more."""
    for value in values:
        node = value.producer()
        while node is not None and not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
            before = node.inputs[0]
            if not is_operator(node, *CLIPPING):
                break
            graph.remove(node, safe=True)
            node = before.producer() if before is not None else None


class _Writer:
    """Adds nodes and initializers to one cloned graph.

    Args:
        clips_codes: whether activations that clip are done on codes where the grid goes beyond their bounds.
    """

    def __init__(self, model: ir.Model, *, clips_codes: bool) -> None:
        self.graph = model.graph
        self.clips_codes = clips_codes and model.opset_imports.get("", 0) >= CLIP_CODES_OPSET
        self.bypassed: list[ir.Value] = []
        self.values = {v.name or "": v for v in self.graph.inputs}
        self.values |= {v.name or "": v for node in self.graph for v in node.outputs}
        self.taken = {name for part in model.graphs() for name in _names(part)}
        self.stored: dict[tuple[str, int | None, bytes], ir.Value] = {}

    def unique(self, name: str) -> str:
        """`name`, with underscores where a node or a value of any graph has it."""
        return take_name(name, self.taken)

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
        clipped = clip_codes(value, qparams) if self.clips_codes else None
        grid = self.grid_of(name, qparams)
        source = value if clipped is None else clipped.source
        codes = self.add("QuantizeLinear", [source, *grid], f"{name}_quantize", like=value)
        codes.type = ir.TensorType(ir.DataType.from_numpy(np.dtype(qparams.dtype.name)))
        if clipped is not None:
            bounds = [
                self.constant(f"{name}_{side}", np.asarray(bound, qparams.dtype.name))
                for side, bound in (("least", clipped.lo), ("most", clipped.hi))
            ]
            codes = self.add("Clip", [codes, *bounds], f"{name}_clip", like=codes)
            self.bypassed.append(value)
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
            grid = self.grid_of(name, tensor.qparams)
            # A zero point for each row would be picked with its codes, and is 0.
            inputs = [codes, *(grid[:1] if is_operator(node, "Gather") else grid)]
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
