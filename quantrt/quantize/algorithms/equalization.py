# SPDX-License-Identifier: Apache-2.0
"""Equalization: channels of an activation brought to like ranges, at no cost in the float model.

    W f(V x + b) = (W S) f(S^-1 V x + S^-1 b)        S = diag(s) > 0, f(a h) = a f(h) for a > 0

An activation has one scale for all of its channels, so narrow channels keep few of its codes; a weight has a
scale per output channel and loses nothing by S^-1. That is cross-layer equalization (Nagel et al. 2019,
section 4.1); with a normalization as the first layer it is SmoothQuant (Xiao et al. 2023).

What narrow channels gain, the columns of W that are scaled down may lose: with r[i] the greatest magnitude in
channel i, s[i] = (r[i] / max r)^a, and a is the strength whose rounding noise in the output of W,

    step^2 / 12 * sum_i s[i]^2 |W[:, i]|^2  +  sum_i |round(W S)[:, i] - (W S)[:, i]|^2 E[x_i^2] / s[i]^2,

is least. The first term is of the activation, whose step is 1/255 of the range; the second of the weights. A
depthwise convolution has a scale per channel there too, and loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import constant_of, int_attribute, is_operator, only_consumer, set_constant_input
from quantrt.ir.session import float_session

__all__ = [
    "ACTIVATION_LEVELS",
    "SUFFIX",
    "Edge",
    "Scales",
    "choose_scales",
    "edge_from",
    "equalized_values",
    "input_channels",
    "multiply_inputs",
    "scale_channels",
]

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]
Scales = Mapping[str, Array]
"""What the output channels of a layer are divided by, float32 [C], by node name."""

SUFFIX = "_equalized"
"""Ends the names of values that are no longer those of the float model."""

STRENGTHS = (0.0, 0.25, 0.5, 0.75)
"""The first scales nothing. The whole, 1, leaves narrow channels no room beyond what calibration saw: on
other samples it was worse by up to 1 dB than 0.75 (MobileNetV1, DS-CNN and a face detector)."""
LEAST_RATIO = 1 / 64
"""Narrower channels count as this part of the widest: where calibration saw little, there may be more."""
ACTIVATION_LEVELS = 255
LEAST_GAIN = 0.8
"""Predicted noise over that without scales, above which an activation is left alone: 1 dB."""

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
    """An activation between a layer that can divide its channels and those that can multiply them.

    Attributes:
        layer: the first layer.
        values: what it makes, and what operators in between make of that; the last one is read.
        readers: the layers that read it, and nothing else does.
        axis: of the channels in the last value.
    """

    layer: ir.Node
    values: tuple[ir.Value, ...]
    readers: tuple[ir.Node, ...]
    axis: int


def choose_scales(graph: ir.Model, batches: Iterable[Mapping[str, Array]], *, qmax: int) -> Scales:
    """Scales for every layer of a float graph from which something is gained.

    Args:
        batches: inputs of the model by name.
        qmax: largest code of a weight.
    """
    edges = [edge for node in graph.graph if (edge := edge_from(node)) is not None]
    if not edges:
        return {}
    found: dict[str, Array] = {}
    for edge, (ranges, powers) in zip(edges, _observe(graph, edges, batches), strict=True):
        scale = _best_scale(edge, ranges, powers, qmax)
        if scale is not None:
            found[edge.layer.name or ""] = scale
    log.debug("equalized %d of %d activations", len(found), len(edges))
    return found


def scale_channels(graph: ir.Model, scales: Scales) -> ir.Model:
    """A clone that computes the same outputs with the channels after some layers divided by `scales`.

    The values in between get new names: they are not those of the float model.
    """
    changed = clone(graph)
    nodes = {node.name or "": node for node in changed.graph}
    taken = {value.name for node in changed.graph.all_nodes() for value in node.outputs}
    for name, scale in scales.items():
        edge = edge_from(nodes[name])
        if edge is None:
            continue
        _divide(changed, edge.layer, scale)
        for reader in edge.readers:
            multiply_inputs(changed, reader, scale)
        for value in edge.values:
            value.name = _free_name(f"{value.name}{SUFFIX}", taken)
            value.meta.clear()
    return changed


def equalized_values(graph: ir.Model, scales: Scales) -> tuple[tuple[str, ...], Scales]:
    """Of a graph made by `scale_channels`: what it renamed, and the scales by the layers that read that."""
    values: list[str] = []
    readers: dict[str, Array] = {}
    for node in graph.graph:
        edge = edge_from(node) if node.name in scales else None
        if edge is not None:
            values += [value.name or "" for value in edge.values]
            readers |= {reader.name or "": scales[node.name or ""] for reader in edge.readers}
    return tuple(values), readers


def _free_name(name: str, taken: set[str | None]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def edge_from(node: ir.Node) -> Edge | None:
    """The edge that begins at a layer; None where its channels cannot be scaled."""
    axis = _output_axis(node)
    if axis is None:
        return None
    values = [node.outputs[0]]
    while (follower := only_consumer(values[-1])) is not None and axis == 1 and _keeps_channels(follower):
        values.append(follower.outputs[0])
    last = values[-1]
    uses = tuple(last.uses())
    channels = _channels(node)
    if last.is_graph_output() or not uses:
        return None
    for node_use, index in uses:
        if index != 0 or node_use.graph is not node.graph or input_channels(node_use) != channels:
            return None
    if axis != 1 and any(is_operator(use.node, "Conv") for use in uses):
        return None
    is_matrix = last.shape is not None and len(last.shape) == 2
    if axis == 1 and not is_matrix and not all(is_operator(use.node, "Conv") for use in uses):
        return None  # a product is over the last axis
    return Edge(node, tuple(values), tuple(use.node for use in uses), axis)


def _output_axis(node: ir.Node) -> int | None:
    """The channel axis of what a layer makes, if its constants can be divided; None otherwise."""
    if is_operator(node, "LayerNormalization"):
        wants = len(node.outputs) == 1 and int_attribute(node, "axis", -1) == -1
        parts = [constant_of(value) for value in node.inputs[1:3]]
        return -1 if wants and all(part is not None and part.ndim == 1 for part in parts) else None
    if not is_operator(node, "Conv", "Gemm") or int_attribute(node, "transA", 0):
        return None
    weight = constant_of(node.inputs[1])
    if weight is None or constant_of(node.inputs[0]) is not None:
        return None
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        bias = constant_of(node.inputs[2])
        if bias is None or bias.size != _channels(node) or bias.shape[-1] != bias.size:
            return None
    return 1


def _channels(node: ir.Node) -> int:
    """Output channels of a layer that `_output_axis` knows."""
    weight = constant_of(node.inputs[1])
    if weight is None:
        return 0
    is_last = is_operator(node, "Gemm") and not int_attribute(node, "transB", 0)
    return int(weight.shape[-1] if is_last else weight.shape[0])


def _keeps_channels(node: ir.Node) -> bool:
    if not is_operator(node, *HOMOGENEOUS) or len(node.outputs) != 1:
        return False
    return not is_operator(node, "Flatten") or int_attribute(node, "axis", 1) == 1


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


def _observe(
    graph: ir.Model, edges: Sequence[Edge], batches: Iterable[Mapping[str, Array]]
) -> list[tuple[Array, Array]]:
    """Greatest magnitude and mean square of each channel of what is read, float64 [C], by edge."""
    names = [edge.values[-1].name or "" for edge in edges]
    session = float_session(graph, extra_outputs=names)
    ranges: list[Any] = [0.0] * len(edges)
    sums: list[Any] = [0.0] * len(edges)
    counts = [0] * len(edges)
    for batch in batches:
        for index, array in enumerate(session.run(names, dict(batch))):
            rows = np.moveaxis(array, edges[index].axis, 0).reshape(array.shape[edges[index].axis], -1)
            ranges[index] = np.maximum(ranges[index], np.abs(rows).max(axis=1, initial=0.0))
            sums[index] = sums[index] + np.square(rows, dtype=np.float64).sum(axis=1)
            counts[index] += rows.shape[1]
    return [(r, s / max(count, 1)) for r, s, count in zip(ranges, sums, counts, strict=True)]


def _best_scale(edge: Edge, ranges: Array, powers: Array, qmax: int) -> Array | None:
    """The scale with the least predicted noise; None where that is no scale at all."""
    widest = float(ranges.max(initial=0.0))
    if not (np.isfinite(widest) and widest > 0):
        return None
    ratios = np.maximum(ranges / widest, LEAST_RATIO)
    scales = [ratios**strength for strength in STRENGTHS]
    columns = [_columns(reader) for reader in edge.readers]
    noise = [_predicted_noise(columns, scale, ranges, powers, qmax) for scale in scales]
    best = int(np.argmin(noise))
    return scales[best].astype(np.float32) if noise[best] < LEAST_GAIN * noise[0] else None


def _predicted_noise(
    columns: Sequence[Array], scale: Array, ranges: Array, powers: Array, qmax: int
) -> float:
    """Rounding noise in the outputs of the layers that read an activation divided by `scale`."""
    step = float((ranges / scale).max()) / ACTIVATION_LEVELS
    total = 0.0
    for weight in columns:
        groups = len(weight)
        by_group = scale.reshape(groups, 1, -1, 1)
        scaled = weight * by_group
        unit = np.abs(scaled).max(axis=(2, 3), keepdims=True) / qmax
        unit = np.where(unit > 0, unit, 1.0)
        error = np.square(np.rint(scaled / unit) * unit - scaled).sum(axis=(1, 3))
        gain = np.square(scaled).sum(axis=(1, 3))
        total += step**2 / 12 * float(gain.sum())
        total += float((error * (powers / np.square(scale)).reshape(groups, -1)).sum())
    return total


def _columns(node: ir.Node) -> Array:
    """A layer's weight as [groups, outputs of a group, inputs of a group, taps]."""
    weight = constant_of(node.inputs[1])
    if weight is None:
        raise ValueError(f"'{node.name}' has no constant weight")
    if node.op_type == "Conv":
        groups = int_attribute(node, "group", 1)
        return weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    matrix = weight if node.op_type == "Gemm" and int_attribute(node, "transB", 0) else weight.T
    return matrix[None, :, :, None]


def multiply_inputs(graph: ir.Model, node: ir.Node, scale: Array) -> None:
    """Multiply the input channels of a layer's weight."""
    weight = constant_of(node.inputs[1])
    if weight is None:
        return
    if node.op_type == "Conv":
        scaled = _columns(node) * scale.reshape(int_attribute(node, "group", 1), 1, -1, 1)
        new = scaled.reshape(weight.shape)
    elif node.op_type == "Gemm" and int_attribute(node, "transB", 0):
        new = weight * scale
    else:
        new = weight * scale[:, None]
    set_constant_input(graph, node, 1, new.astype(weight.dtype), f"{node.name}{SUFFIX}_weight")


def _divide(graph: ir.Model, node: ir.Node, scale: Array) -> None:
    """Divide the output channels of a layer's constants."""
    for index in (1, 2):
        array = constant_of(node.inputs[index]) if index < len(node.inputs) else None
        if array is None:
            continue
        is_plain_gemm = node.op_type == "Gemm" and not int_attribute(node, "transB", 0)
        is_last = index == 2 or array.ndim == 1 or is_plain_gemm
        divisor = scale if is_last else scale.reshape(-1, *[1] * (array.ndim - 1))
        name = f"{node.name}{SUFFIX}_{'weight' if index == 1 else 'bias'}"
        set_constant_input(graph, node, index, (array / divisor).astype(array.dtype), name)
