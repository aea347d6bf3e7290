# SPDX-License-Identifier: Apache-2.0
"""What rounding does to the inputs of layers, channel by channel, over a few samples of the float model.

    noise[c]  = mean (Q(x) - x)^2        power[c] = variance of x        peak[c] = max |x|

over all values of channel c. Q is the grid that a build for the target would use. The variance and not the
mean square: what a channel adds to every output alike carries nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.dataset import Dataset
from quantrt.calibrate.taps import Taps
from quantrt.ir.edit import is_operator
from quantrt.model.model import Model
from quantrt.quantize.qdq.switches import MOVES
from quantrt.quantize.quantized_model import QuantizedModel, Use
from quantrt.quantize.scales.qparams import QParams, dequantize, quantize_array

__all__ = ["Channels", "observe_inputs"]

Array = np.ndarray[Any, Any]

ROWS = 8
"""Samples per run where shapes allow."""

MEMORY_BYTES = 256 << 20
"""Of activations that are held at once."""


@dataclass(frozen=True)
class Channels:
    """One input of one layer, by channel.

    Attributes:
        noise, power, peak: float64 [C].
    """

    noise: Array
    power: Array
    peak: Array


@dataclass
class _Sums:
    """What is added up for one input; float64 [C] each."""

    count: int = 0
    noise: Any = 0.0
    total: Any = 0.0
    squares: Any = 0.0
    peak: Any = field(default=0.0)

    def add(self, rows: Array, rounded: Array) -> None:
        """Values of every channel, [C, N], and what they are rounded to."""
        self.count += rows.shape[1]
        self.noise = self.noise + np.square(rounded - rows).sum(axis=1)
        self.total = self.total + rows.sum(axis=1)
        self.squares = self.squares + np.square(rows).sum(axis=1)
        self.peak = np.maximum(self.peak, np.abs(rows).max(axis=1, initial=0.0))

    def channels(self) -> Channels:
        count = max(self.count, 1)
        power = np.maximum(self.squares / count - np.square(self.total / count), 0.0)
        return Channels(self.noise / count, power, self.peak)


def observe_inputs(
    model: Model, quantized: QuantizedModel, data: Dataset, samples: int
) -> dict[Use, Channels]:
    """Every 8-bit input of a layer, by (node, index).

    Args:
        quantized: the model for the target.
        samples: how many of the data are run.

    Raises:
        DataError: the model fails on them.
    """
    edges = _edges(model.graph, quantized)
    sums = {edge: _Sums() for edges_of in edges.values() for edge in edges_of}
    taps = Taps(model, sorted(edges), MEMORY_BYTES)
    for batch in data.batches(ROWS, samples):
        for group in taps.run(batch.inputs, f"samples of '{data.source}'"):
            for name in list(group):
                values = data.layout.own_rows(group.pop(name), batch.count)
                for edge, (axis, grid) in edges[name].items():
                    sums[edge].add(*_rounded(values, axis, grid))
    return {edge: found.channels() for edge, found in sums.items() if found.count}


def _edges(graph: ir.Model, quantized: QuantizedModel) -> dict[str, dict[Use, tuple[int, QParams]]]:
    """By tapped value: the edges of 8-bit nodes that read it, with the channel axis and the grid of each."""
    int8 = {row.node for row in quantized.placement.decisions if row.is_int8}
    found: dict[str, dict[Use, tuple[int, QParams]]] = {}
    for node in graph.graph:
        for index, value in enumerate(node.inputs):
            grid = _grid(node, index, quantized) if node.name in int8 else None
            if grid is not None and value is not None and value.name:
                axis = -1 if is_operator(node, "MatMul", "Gemm") else 1
                found.setdefault(value.name, {})[node.name or "", index] = (axis, grid)
    return found


def _grid(node: ir.Node, index: int, quantized: QuantizedModel) -> QParams | None:
    """Of what a node reads: rounding may stand before the nodes that move it there. None for floats."""
    uses = quantized.placement.uses
    while (node.name or "", index) not in uses:
        value = node.inputs[index]
        maker = None if value is None else value.producer()
        if maker is None or not is_operator(maker, *MOVES) or not maker.inputs:
            return None
        node, index = maker, 0
    return quantized.activations[uses[node.name or "", index]]


def _rounded(values: Array, axis: int, grid: QParams) -> tuple[Array, Array]:
    """[C, N] of a tensor and of what it is rounded to; one channel where it has no such axis."""
    if values.ndim <= max(axis, 0) or values.ndim < 2:
        rows = values.reshape(1, -1)
    else:
        rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    rounded = dequantize(quantize_array(rows, grid), grid)
    return rows.astype(np.float64), rounded.astype(np.float64)
