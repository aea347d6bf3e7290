# SPDX-License-Identifier: Apache-2.0
"""The numbers of a quantized model that cannot be had from its float model again, JSON-ready and small.

Codes of weights are left out: the float weights and the axis give them. An engine whose graph does not show
its quantization keeps this record, so that it can be held against the fake-quantized model later.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.dtypes import dtype
from quantrt.errors import ModelError, UsageError
from quantrt.ir.edit import constant_of
from quantrt.model.model import Model
from quantrt.quantize.algorithms.balance_tables import balance_tables
from quantrt.quantize.algorithms.bias_correction import corrected_biases, set_biases
from quantrt.quantize.algorithms.smoothing import Smoothing, smooth
from quantrt.quantize.quantized_model import Placement, QuantizedModel
from quantrt.quantize.scales.qparams import QParams, QuantizedTensor, quantize_weight
from quantrt.quantize.target import Target

__all__ = [
    "array_text",
    "from_record",
    "grid_from_row",
    "grid_row",
    "record_of",
    "scaled_graph",
    "text_array",
]


def record_of(quantized: QuantizedModel) -> dict[str, Any]:
    """The record of a model whose biases are floats."""
    used = set(quantized.placement.uses.values())
    return {
        "activations": {name: grid_row(grid) for name, grid in quantized.activations.items() if name in used},
        "uses": [[node, index, value] for (node, index), value in quantized.placement.uses.items()],
        "per_token": sorted([node, index] for node, index in quantized.placement.per_token),
        "weights": [[node, index, x.qparams.axis] for (node, index), x in quantized.weights.items()],
        "biases": {name: array_text(bias) for name, bias in corrected_biases(quantized.graph).items()},
        "channel_scales": {name: array_text(scale) for name, scale in quantized.channel_scales.items()},
        "multiplied": {name: array_text(scale) for name, scale in quantized.multiplied.items()},
    }


def from_record(model: Model, record: Mapping[str, Any], target: Target) -> QuantizedModel:
    """The quantized model that `record_of` described.

    Args:
        model: the float model that was quantized.

    Raises:
        ModelError: the record is damaged, or of another model.
    """
    try:
        activations = {name: grid_from_row(*row) for name, row in record["activations"].items()}
        uses = {(str(node), int(index)): str(value) for node, index, value in record["uses"]}
        per_token = frozenset((str(node), int(index)) for node, index in record.get("per_token", ()))
        axes = {(str(node), int(index)): axis for node, index, axis in record["weights"]}
        biases = {str(name): text_array(text) for name, text in record["biases"].items()}
        scales, multiplied = (
            {str(name): text_array(text) for name, text in record.get(key, {}).items()}
            for key in ("channel_scales", "multiplied")
        )
    except (KeyError, TypeError, ValueError, AttributeError, UsageError, binascii.Error) as error:
        raise ModelError("the record of the quantization is damaged", got=str(error)) from error
    placement = Placement(
        values=frozenset(activations),
        uses=uses,
        per_token=per_token,
        weights=axes,
    )
    graph = balance_tables(scaled_graph(model, Smoothing(scales, multiplied)), axes)
    weights = {use: _codes(graph, use, axis, target) for use, axis in axes.items()}
    graph = set_biases(graph, biases)
    return QuantizedModel(
        model=model,
        graph=graph,
        target=target,
        placement=placement,
        activations=activations,
        weights=weights,
        channel_scales=scales,
        multiplied=multiplied,
    )


def scaled_graph(model: Model, smoothing: Smoothing) -> ir.Model:
    """The graph whose channels were equalized or smoothed; the model's own where none were."""
    try:
        return smooth(model.graph, smoothing) if smoothing.folded or smoothing.multiplied else model.graph
    except (KeyError, ValueError) as error:
        raise ModelError("the record of the quantization is of another model", got=str(error)) from error


def _codes(graph: ir.Model, use: tuple[str, int], axis: int | None, target: Target) -> QuantizedTensor:
    node = next((node for node in graph.graph if node.name == use[0]), None)
    weight = None if node is None or len(node.inputs) <= use[1] else constant_of(node.inputs[use[1]])
    if node is None or weight is None:
        raise ModelError(f"the model has no layer '{use[0]}' with a constant weight")
    dtype, qmax = target.weight_codes(node.op_type)
    return quantize_weight(weight, axis=axis, dtype=dtype, qmax=qmax)


def grid_row(grid: QParams) -> list[Any]:
    """A grid without an axis, JSON-ready."""
    return [float(grid.scale), int(grid.zero_point), grid.dtype.name, grid.qmin, grid.qmax]


def grid_from_row(scale: float, zero_point: int, name: str, qmin: int, qmax: int) -> QParams:
    """The grid of `grid_row`."""
    return QParams(
        np.asarray(scale, np.float32),
        np.asarray(zero_point, np.int32),
        dtype(name),
        None,
        int(qmin),
        int(qmax),
    )


def array_text(array: np.ndarray) -> str:
    """Float32 values of a vector, in base64."""
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()


def text_array(text: str) -> np.ndarray:
    """The vector of `array_text`."""
    return np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float32)
