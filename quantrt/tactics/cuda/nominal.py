# SPDX-License-Identifier: Apache-2.0
"""A model in codes before there are ranges: as the rules of the target place it, scales and codes made up."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.model.model import Model
from quantrt.quantize.placement import place
from quantrt.quantize.qparams import QParams, QuantizedTensor
from quantrt.quantize.quantized_model import Placement, QuantizedModel
from quantrt.quantize.targets.cuda import CUDA

__all__ = ["nominal"]


def nominal(model: Model) -> QuantizedModel:
    """The model as the target's rules place it, every scale 1 and every weight 0."""
    placement = place(model.graph, CUDA)
    return QuantizedModel(
        model=model,
        graph=model.graph,
        target=CUDA,
        placement=placement,
        activations=dict.fromkeys(placement.values, _unit_grid()),
        weights=_zero_weights(model.graph, placement),
    )


def _unit_grid(channels: int | None = None, axis: int | None = None) -> QParams:
    size = () if channels is None else (channels,)
    grid = CUDA.activation
    return QParams(
        np.ones(size, np.float32), np.zeros(size, np.int32), grid.dtype, axis, grid.qmin, grid.qmax
    )


def _zero_weights(graph: ir.Model, placement: Placement) -> dict[tuple[str, int], QuantizedTensor]:
    nodes = {node.name or "": node for node in graph.graph}
    weights = {}
    for (node, index), axis in placement.weights.items():
        value = nodes[node].inputs[index]
        array = value.const_value if value is not None else None
        if array is None:
            continue
        shape = tuple(array.shape.numpy())
        channels = None if axis is None else shape[axis]
        weights[node, index] = QuantizedTensor(np.zeros(shape, np.int8), _unit_grid(channels, axis))
    return weights
