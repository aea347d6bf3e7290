# SPDX-License-Identifier: Apache-2.0
"""Equalization: channels of an activation brought to like ranges, at no cost in the float model.

    W f(V x + b) = (W S) f(S^-1 V x + S^-1 b)        S = diag(s) > 0, f(a h) = a f(h) for a > 0

An activation has one scale for all of its channels, so narrow channels keep few of its codes; a weight has a
scale per output channel and loses nothing by S^-1. That is cross-layer equalization (Nagel et al. 2019,
section 4.1), here of residual streams too; with a normalization as the first layer it is SmoothQuant (Xiao et
al. 2023).

What narrow channels gain, the columns of W that are scaled down may lose: with r[i] the greatest magnitude in
channel i, s[i] = (r[i] / max r)^a, and a is the strength whose rounding noise in the output of W,

    step^2 / 12 * sum_i s[i]^2 |W[:, i]|^2  +  sum_i |round(W S)[:, i] - (W S)[:, i]|^2 E[x_i^2] / s[i]^2,

is least. The first term is of the activation, whose step is 1/255 of the range; the second of the weights. A
depthwise convolution has a scale per channel there too, and loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import constant_of, int_attribute, set_constant_input, take_name, taken_names
from quantrt.ir.session import float_session
from quantrt.quantize.algorithms.channel_edges import Edge, find_edges

__all__ = [
    "ACTIVATION_LEVELS",
    "SUFFIX",
    "EdgeExtremes",
    "Scales",
    "choose_scales",
    "divided_values",
    "equalized_values",
    "multiply_inputs",
    "scale_channels",
    "without_streams",
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
SQUARED_IN_FLOAT32 = 1e15
"""Below it the squares of 300 million values have a sum in float32, whose largest is 3.4e38."""
STREAM_STRENGTHS = (*STRENGTHS, 1.0)
"""Of residual streams, where each channel's range is the widest of several values: that is room enough."""
LEAST_RATIO = 1 / 64
"""Narrower channels count as this part of the widest: where calibration saw little, there may be more."""
LEAST_OF_MIDDLE = 1 / 16
"""Of the middle channel, the same for residual streams whose widest ones stand far above it."""
ACTIVATION_LEVELS = 255
LEAST_GAIN = 0.8
"""Predicted noise over that without scales, above which an activation is left alone: 1 dB."""
STREAM_GAIN = 0.25
"""The same of a residual stream, 6 dB: for it the model is fitted once more. Those of trained MobileNetV3,
EfficientViT and ResNet gain 1 to 3.6 dB at most, which was none of the outputs'."""


def choose_scales(graph: ir.Model, batches: Iterable[Mapping[str, Array]], *, qmax: int) -> Scales:
    """Scales for every layer of a float graph from which something is gained.

    Args:
        batches: inputs of the model by name.
        qmax: largest code of a weight.
    """
    extremes = EdgeExtremes(graph)
    if not extremes.names:
        return {}
    session = float_session(graph, extra_outputs=extremes.names)
    for batch in batches:
        for name, values in zip(extremes.names, session.run(extremes.names, dict(batch)), strict=True):
            extremes.see(name, values)
    return extremes.scales(qmax=qmax)


class EdgeExtremes:
    """Greatest magnitude and mean square of each channel of what is rounded, by edge, over what was seen.

    Attributes:
        names: the values that are rounded.
    """

    def __init__(self, graph: ir.Model) -> None:
        self._edges = find_edges(graph.graph)
        self._edges_of: dict[str, list[str]] = {}
        for first, edge in self._edges.items():
            for value in edge.rounded:
                self._edges_of.setdefault(value.name or "", []).append(first)
        self.names = tuple(self._edges_of)
        self._ranges: dict[str, Array] = {}
        self._sums: dict[str, Array] = {}
        self._counts: dict[str, int] = {}

    def see(self, name: str, values: Array) -> None:
        """Add what one of the values is in one batch."""
        for first in self._edges_of.get(name, ()):
            axis = self._edges[first].axis
            rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).astype(np.float32, copy=False)
            widest = np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))
            self._ranges[first] = np.maximum(self._ranges.get(first, 0.0), widest.astype(np.float64))
            self._sums[first] = self._sums.get(first, 0.0) + _squares(rows, widest)
            self._counts[first] = self._counts.get(first, 0) + rows.shape[1]

    def scales(self, *, qmax: int) -> Scales:
        """For every layer from which something is gained.

        Args:
            qmax: largest code of a weight.
        """
        found: dict[str, Array] = {}
        for first, ranges in self._ranges.items():
            powers = self._sums[first] / max(self._counts[first], 1)
            scale = _best_scale(self._edges[first], ranges, powers, qmax)
            if scale is not None:
                found[first] = scale
        log.debug("equalized %d of %d activations", len(found), len(self._edges))
        return {first: found[first] for first in self._edges if first in found}


def without_streams(graph: ir.Model, scales: Scales) -> Scales:
    """Those of the scales that are on no residual stream."""
    edges = find_edges(graph.graph)
    return {name: scale for name, scale in scales.items() if not edges[name].is_stream}


def scale_channels(graph: ir.Model, scales: Scales) -> ir.Model:
    """A clone that computes the same outputs with the channels after some layers divided by `scales`.

    The values in between get new names: they are not those of the float model.

    Raises:
        KeyError: no edge of the graph begins at such a layer.
    """
    changed = clone(graph)
    edges = find_edges(changed.graph)
    taken = taken_names(changed)
    for name, scale in scales.items():
        edge = edges[name]
        for layer in edge.layers:
            _divide(changed, layer, scale)
        for reader in edge.readers:
            multiply_inputs(changed, reader, scale)
        for value in edge.values:
            value.name = take_name(f"{value.name}{SUFFIX}", taken)
            value.meta.clear()
    return changed


def equalized_values(graph: ir.Model, scales: Scales) -> tuple[tuple[str, ...], Scales]:
    """Of a graph made by `scale_channels`: what it renamed, and the scales by the layers that read that."""
    values: list[str] = []
    readers: dict[str, Array] = {}
    for name, edge in find_edges(graph.graph).items():
        if name in scales:
            values += [value.name or "" for value in edge.values]
            readers |= {reader.name or "": scales[name] for reader in edge.readers}
    return tuple(values), readers


def divided_values(graph: ir.Model, scales: Scales) -> dict[str, tuple[Array, int]]:
    """What `scale_channels` divides the values of a float graph by, and along which axis, by their names."""
    return {
        value.name or "": (scales[first], edge.axis)
        for first, edge in find_edges(graph.graph).items()
        if first in scales
        for value in edge.values
    }


def _squares(rows: Array, widest: Array) -> Array:
    """Sum of squares of each row, f64; in f32 where that holds them.

    Args:
        widest: greatest magnitude of each row.
    """
    wide = rows if widest.max(initial=0.0) < SQUARED_IN_FLOAT32 else rows.astype(np.float64)
    return np.asarray(np.vecdot(wide, wide), np.float64)


def _best_scale(edge: Edge, ranges: Array, powers: Array, qmax: int) -> Array | None:
    """The scale with the least predicted noise; None where that is no scale at all."""
    widest = float(ranges.max(initial=0.0))
    if not (np.isfinite(widest) and widest > 0):
        return None
    least = widest * LEAST_RATIO
    middle = float(np.median(ranges))
    if edge.is_stream and middle > 0:
        least = min(least, middle * LEAST_OF_MIDDLE)
    ratios = np.maximum(ranges, least) / widest
    strengths, gain = (STREAM_STRENGTHS, STREAM_GAIN) if edge.is_stream else (STRENGTHS, LEAST_GAIN)
    scales = [ratios**strength for strength in strengths]
    columns = [_columns(reader) for reader in edge.readers]
    noise = [_predicted_noise(columns, scale, ranges, powers, qmax) for scale in scales]
    best = int(np.argmin(noise))
    return scales[best].astype(np.float32) if noise[best] < gain * noise[0] else None


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
