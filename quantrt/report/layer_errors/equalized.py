# SPDX-License-Identifier: Apache-2.0
"""The float model with equalized or smoothed channels that a quantized model was made of.

Equalization divides the output channels of a layer and multiplies the input channels of its readers
(`quantrt.quantize.algorithms.equalization`). The factors are not kept, but the weights show them: exactly
behind a normalization, elsewhere as the least squares fit of each channel's codes to its floats. Any factors
give a model that computes what the float model computes; these give the one that was rounded, to a hundredth
of a percent or so. Factors of Muls before products (`quantrt.quantize.algorithms.smoothing`) are constants of
the quantized model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.model.model import Model
from quantrt.quantize.algorithms.channel_edges import Edge, find_edges
from quantrt.quantize.algorithms.equalization import SUFFIX, scale_channels
from quantrt.quantize.algorithms.smoothing import MULTIPLIED, Smoothing, product_inputs, smooth

__all__ = ["unscaled_twin", "with_fitted_scales"]

Array = np.ndarray


def unscaled_twin(model: Model, tensors: Collection[str]) -> Model:
    """The model with the names of an equalized one, and factors of 1; the model itself where nothing was.

    Args:
        tensors: names in the quantized model.
    """
    edges = _equalized(model.graph, tensors)
    scales = {name: np.ones(edge.channels, np.float32) for name, edge in edges.items()}
    return _smoothed(model, Smoothing(scales, _multiplied(model.graph, tensors)))


def with_fitted_scales(model: Model, fake: ir.Model) -> Model:
    """The equalized float model behind a fake-quantized graph; the model itself where nothing was."""
    tensors = {value.name or "" for node in fake.graph for value in node.outputs}
    theirs = {node.name or "": node for node in fake.graph}
    edges = _equalized(model.graph, tensors)
    scaled = {layer for edge in edges.values() for layer in edge.layers}
    scales: dict[str, Array] = {}
    for name, edge in edges.items():
        # A depthwise convolution between two others is scaled on both sides: what comes before it is known.
        mine = {node.name or "": node for node in scale_channels(model.graph, scales).graph}
        readers = [reader.name or "" for reader in edge.readers if reader not in scaled]
        scales[name] = _scale(name, readers, edge.channels, mine, theirs)
    multiplied = _multiplied(model.graph, tensors)
    for name, ones in multiplied.items():
        factors = constant_of(theirs[f"{name}{MULTIPLIED}"].inputs[1])
        if factors is not None and factors.size == ones.size:
            multiplied[name] = (1.0 / factors).reshape(-1).astype(np.float32)
    return _smoothed(model, Smoothing(scales, multiplied))


def _smoothed(model: Model, smoothing: Smoothing) -> Model:
    if not (smoothing.folded or smoothing.multiplied):
        return model
    return replace(model, graph=smooth(model.graph, smoothing))


def _multiplied(graph: ir.Model, tensors: Collection[str]) -> dict[str, Array]:
    """Values that a Mul divides in the quantized model -> a factor of 1 for each of their channels."""
    return {
        name: np.ones(size, np.float32)
        for name, size in product_inputs(graph).items()
        if f"{name}{MULTIPLIED}" in tensors
    }


def _equalized(graph: ir.Model, tensors: Collection[str]) -> dict[str, Edge]:
    """Edges whose channels were scaled, by the names of their first layers."""
    return {
        name: edge
        for name, edge in find_edges(graph.graph).items()
        if any(f"{value.name}{SUFFIX}" in tensors for value in edge.values)
    }


def _scale(
    name: str, readers: list[str], size: int, mine: Mapping[str, ir.Node], theirs: Mapping[str, ir.Node]
) -> Array:
    """The factor of each channel, float32 [C], from whatever shows it best."""
    before, after = _weight(mine[name]), _weight(theirs.get(name))
    behind = _fit(_rows(mine[name], after), _rows(mine[name], before))  # before = s * after
    if is_operator(mine[name], "LayerNormalization") or not readers:
        return _usable(behind, np.ones(size))
    parts = [
        (
            _columns(mine[reader], _weight(mine[reader]), size),
            _columns(mine[reader], _weight(theirs.get(reader)), size),
        )
        for reader in readers
    ]
    ahead = _fit(*(np.concatenate([part[side] for part in parts], axis=1) for side in (0, 1)))
    sizes = before.size, sum(part[0].size for part in parts)
    first, second = (behind, ahead) if sizes[0] >= sizes[1] else (ahead, behind)
    return _usable(first, _usable(second, np.ones(size)))


def _fit(x: Array, y: Array) -> Array:
    """For each row the factor s with the least |y - s x|^2; NaN for a row of zeros."""
    power = np.square(x, dtype=np.float64).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((x.astype(np.float64) * y).sum(axis=1) / power)


def _usable(scale: Array, other: Array) -> Array:
    return np.where(np.isfinite(scale) & (scale > 0), scale, other).astype(np.float32)


def _rows(node: ir.Node, weight: Array) -> Array:
    """A layer's weight as [output channels, rest]."""
    if is_operator(node, "Gemm") and not int_attribute(node, "transB", 0):
        weight = weight.T
    return weight.reshape(len(weight), -1)


def _columns(node: ir.Node, weight: Array, size: int) -> Array:
    """A layer's weight as [input channels, rest]."""
    if node.op_type == "Conv":
        groups = int_attribute(node, "group", 1)
        parts = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
        return parts.transpose(0, 2, 1, 3).reshape(size, -1)
    if is_operator(node, "Gemm") and int_attribute(node, "transB", 0):
        weight = weight.T
    return weight.reshape(size, -1)


def _weight(node: ir.Node | None) -> Array:
    """The floats of a layer's weight; of codes, what they stand for."""
    value = node.inputs[1] if node is not None else None
    array = constant_of(value)
    if array is not None:
        return array
    maker = value.producer() if value is not None else None
    if maker is None or not is_operator(maker, "DequantizeLinear"):
        return np.full((1, 1), np.nan)
    codes, scale = (constant_of(maker.inputs[index]) for index in (0, 1))
    zero_point = constant_of(maker.inputs[2]) if len(maker.inputs) > 2 else None
    if codes is None or scale is None:
        return np.full((1, 1), np.nan)
    axis = int_attribute(maker, "axis", 1)
    shape = [-1 if index == axis else 1 for index in range(codes.ndim)] if scale.ndim else []
    shift = 0 if zero_point is None else zero_point.astype(np.int64).reshape(shape)
    return np.asarray((codes.astype(np.int64) - shift) * scale.reshape(shape), np.float32)
