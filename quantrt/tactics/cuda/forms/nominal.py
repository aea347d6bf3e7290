# SPDX-License-Identifier: Apache-2.0
"""A model in codes before there are ranges: as the rules of the target place it, scales and codes made up."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.model.model import Model
from quantrt.quantize.placement.placement import place
from quantrt.quantize.quantized_model import Placement, QuantizedModel
from quantrt.quantize.scales.qparams import QParams, QuantizedTensor
from quantrt.quantize.target import Grid, Target
from quantrt.quantize.targets.cuda import CUDA

__all__ = ["nominal"]


def nominal(model: Model, target: Target = CUDA) -> QuantizedModel:
    """The model as a target's rules place it, every scale 1 and every weight 0."""
    placement = place(model.graph, target)
    return QuantizedModel(
        model=model,
        graph=model.graph,
        target=target,
        placement=placement,
        activations={
            name: _unit_grid(placement.grids.get(name, target.activation)) for name in placement.values
        },
        weights=_zero_weights(model.graph, placement, target),
    )


def _unit_grid(grid: Grid, channels: int | None = None, axis: int | None = None) -> QParams:
    size = () if channels is None else (channels,)
    return QParams(
        np.ones(size, np.float32), np.zeros(size, np.int32), grid.dtype, axis, grid.qmin, grid.qmax
    )


def _zero_weights(
    graph: ir.Model, placement: Placement, target: Target
) -> dict[tuple[str, int], QuantizedTensor]:
    nodes = {node.name or "": node for node in graph.graph}
    weights = {}
    for (node, index), axis in placement.weights.items():
        value = nodes[node].inputs[index]
        array = value.const_value if value is not None else None
        if array is None:
            continue
        shape = tuple(array.shape.numpy())
        channels = None if axis is None else shape[axis]
        dtype, qmax = target.weight_codes(nodes[node].op_type)
        grid = _unit_grid(Grid(dtype, True, -qmax, qmax), channels, axis)
        weights[node, index] = QuantizedTensor(np.zeros(shape, dtype.name), grid)
    return weights
