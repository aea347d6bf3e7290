# SPDX-License-Identifier: Apache-2.0
"""Edges whose channels can be scaled at no cost: what layers divide, and the layers behind multiply.

    W f(V x + b) = (W S) f(S^-1 V x + S^-1 b)        S = diag(s) > 0, f(a h) = a f(h) for a > 0

Between them stand operators that keep channels apart and know no sizes, such as Relu (Nagel et al. 2019,
section 4.1). Where sums stand there too it is a residual stream: every layer that adds to it divides, and
every layer that reads of it multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator

__all__ = ["Edge", "find_edges", "input_channels"]

ROUNDING = ("Conv", "Gemm", "MatMul", "Add")
LAYERS = ("Conv", "Gemm", "MatMul")
HOMOGENEOUS = (
    "Relu",
    "LeakyRelu",
    "MaxPool",
    "AveragePool",
    "GlobalMaxPool",
    "GlobalAveragePool",
    "Flatten",
    "Identity",
)
"""Operators f with f(a h) = a f(h) for a > 0 that keep the channels apart."""


@dataclass(frozen=True)
class Edge:
    """An activation between layers that can divide its channels and those that can multiply them.

    Attributes:
        layers: the layers that make it: one, or those that add to a residual stream, from the first on.
        values: what these make, and what operators in between make of that.
        readers: the layers that read it, and nothing else does.
        axis: of the channels in what is read.
        channels: how many there are.
    """

    layers: tuple[ir.Node, ...]
    values: tuple[ir.Value, ...]
    readers: tuple[ir.Node, ...]
    axis: int
    channels: int

    @property
    def is_stream(self) -> bool:
        """Whether sums are on it."""
        return any(is_operator(value.producer(), "Add") for value in self.values)

    @property
    def rounded(self) -> tuple[ir.Value, ...]:
        """The values that layers and sums read, which are rounded before they do."""
        wanted = [
            value for value in self.values if any(is_operator(node, *ROUNDING) for node in value.consumers())
        ]
        return tuple(wanted)


def find_edges(graph: ir.Graph) -> dict[str, Edge]:
    """Every edge of a graph by the name of its first layer, in topological order."""
    found: dict[str, Edge] = {}
    taken: set[ir.Node] = set()
    for node in graph:
        edge = _edge_from(node) if node not in taken else None
        if edge is not None:
            found[node.name or ""] = edge
            taken.update(edge.layers)
    return found


def _edge_from(node: ir.Node) -> Edge | None:
    """The edge that a layer is on the near side of; None where its channels cannot be scaled."""
    if is_operator(node, "LayerNormalization"):
        return _normalized(node)
    channels = _output_channels(node)
    return None if channels is None else _collected(node, channels)


def _output_channels(node: ir.Node) -> int | None:
    """Channels that a layer makes, if its constants can be divided; None otherwise."""
    if not is_operator(node, "Conv", "Gemm") or int_attribute(node, "transA", 0):
        return None
    weight = constant_of(node.inputs[1])
    if weight is None or constant_of(node.inputs[0]) is not None:
        return None
    is_last = is_operator(node, "Gemm") and not int_attribute(node, "transB", 0)
    channels = int(weight.shape[-1] if is_last else weight.shape[0])
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        bias = constant_of(node.inputs[2])
        if bias is None or bias.size != channels or bias.shape[-1] != bias.size:
            return None
    return channels


def input_channels(node: ir.Node) -> int | None:
    """Channels that a layer with a constant weight reads; None for other nodes."""
    if not is_operator(node, *LAYERS) or int_attribute(node, "transA", 0):
        return None
    weight = constant_of(node.inputs[1])
    if weight is None or (node.op_type != "Conv" and weight.ndim != 2):
        return None
    if node.op_type == "Conv":
        return int(weight.shape[1]) * int_attribute(node, "group", 1)
    return int(weight.shape[1 if node.op_type == "Gemm" and int_attribute(node, "transB", 0) else 0])


def _normalized(node: ir.Node) -> Edge | None:
    """The edge behind a normalization over the last axis, whose factors can be divided."""
    parts = [constant_of(value) for value in node.inputs[1:3]]
    gamma = parts[0]
    is_last = len(node.outputs) == 1 and int_attribute(node, "axis", -1) == -1
    if not is_last or gamma is None or not all(part is not None and part.ndim == 1 for part in parts):
        return None
    value, channels = node.outputs[0], len(gamma)
    uses = tuple(value.uses())
    is_read = uses and all(
        index == 0 and input_channels(reader) == channels and not is_operator(reader, "Conv")
        for reader, index in uses
    )
    if value.is_graph_output() or not is_read or any(reader.graph is not node.graph for reader, _ in uses):
        return None
    return Edge((node,), (value,), tuple(use.node for use in uses), -1, channels)


def _collected(layer: ir.Node, channels: int) -> Edge | None:
    """Everything that has to be scaled with what a layer makes; None where something cannot be."""
    values = [layer.outputs[0]]
    seen = set(values)
    layers = {layer: None}
    readers: dict[ir.Node, None] = {}
    for value in values:  # grows while it is walked
        maker = value.producer()
        if maker is None or value.is_graph_output():
            return None
        between = [maker]
        if _output_channels(maker) == channels:
            layers[maker] = None
            between = []
        for node, index in value.uses():
            if node.graph is not layer.graph:
                return None
            if index == 0 and _reads(node, value, channels):
                readers[node] = None
            else:
                between.append(node)
        for node in between:
            if not _keeps_channels(node, channels):
                return None
            for near in (*node.inputs, *node.outputs):
                if near is not None and near not in seen:
                    seen.add(near)
                    values.append(near)
    return Edge(tuple(layers), tuple(values), tuple(readers), 1, channels) if readers else None


def _reads(node: ir.Node, value: ir.Value, channels: int) -> bool:
    """Whether a layer reads channels of the second axis: a product is over the last."""
    is_matrix = value.shape is not None and len(value.shape) == 2
    return input_channels(node) == channels and (is_matrix or is_operator(node, "Conv"))


def _keeps_channels(node: ir.Node, channels: int) -> bool:
    if is_operator(node, "Add"):
        shapes = [value.shape for value in node.inputs if value is not None]
        return len({None if shape is None else len(shape) for shape in shapes}) == 1 and all(
            shape is not None and len(shape) > 1 and shape[1] == channels for shape in shapes
        )
    if not is_operator(node, *HOMOGENEOUS) or len(node.outputs) != 1:
        return False
    return not is_operator(node, "Flatten") or int_attribute(node, "axis", 1) == 1
