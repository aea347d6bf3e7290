# SPDX-License-Identifier: Apache-2.0
"""From statistics to numbers: a grid for every quantized edge of a model, for one target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.grid import Grid as RangeGrid
from quantrt.calibrate.ranges import Range, choose_range
from quantrt.calibrate.stats import Stats, TensorStats
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import DataError
from quantrt.model.model import Model
from quantrt.quantize.algorithms.bias_correction import ChannelMeans, correct_biases
from quantrt.quantize.placement import place
from quantrt.quantize.qparams import (
    QParams,
    QuantizedTensor,
    bias_qparams,
    choose_qparams,
    quantize_array,
    quantize_weight,
)
from quantrt.quantize.quantized_model import Placement, QuantizedModel, Use
from quantrt.quantize.target import Grid, Target

__all__ = ["observed_values", "quantize"]

Array = np.ndarray[Any, Any]


def observed_values(model: Model, targets: tuple[Target, ...], config: QuantizeConfig) -> tuple[str, ...]:
    """Names of the activations that any of the targets quantizes: what calibration must tap."""
    placements = [
        place(model.graph, target, exclude=config.exclude, exclude_types=config.exclude_types)
        for target in targets
    ]
    return tuple(sorted(frozenset().union(*(placement.values for placement in placements))))


def quantize(
    model: Model,
    stats: Stats,
    target: Target,
    config: QuantizeConfig,
    calibration: CalibrationConfig,
    *,
    means: ChannelMeans | None = None,
) -> QuantizedModel:
    """Quantize a float model for one target.

    Args:
        stats: observed activations, with an entry for each value the target quantizes.
        means: channel means of layer inputs, for bias correction; None leaves the biases as they are.

    Raises:
        DataError: a value was not observed; names it.
        UsageError: an exclusion matches nothing.
    """
    placement = place(model.graph, target, exclude=config.exclude, exclude_types=config.exclude_types)
    activations, notes = _activations(placement, stats, target, calibration)
    operands = _operands(model.graph)
    weights = {
        use: quantize_weight(
            operands[use], axis=axis if config.per_channel else None, qmax=target.weight_qmax
        )
        for use, axis in placement.weights.items()
    }
    graph = model.graph if means is None else correct_biases(model.graph, weights, means)
    return QuantizedModel(
        model=model,
        graph=graph,
        target=target,
        placement=placement,
        activations=activations,
        weights=weights,
        biases=_biases(placement, activations, weights, _operands(graph)),
        notes=notes,
    )


def _activations(
    placement: Placement, stats: Stats, target: Target, calibration: CalibrationConfig
) -> tuple[dict[str, QParams], tuple[str, ...]]:
    """One grid per quantized value, from the joint statistics of its group; and what to tell the user."""
    missing = sorted(name for name in placement.values if name not in stats.tensors)
    if missing:
        raise DataError(
            f"no range for {len(missing)} of {len(placement.values)} activations, such as '{missing[0]}'",
            hint="calibrating this model again, with these exclusions and this version",
        )
    group_of = {name: group for group in placement.groups for name in group}
    chosen: dict[str, QParams] = {}
    notes: list[str] = []
    for name in sorted(placement.values - chosen.keys()):
        members = sorted(group_of.get(name, frozenset([name])))
        if name != members[0]:
            continue
        joint = _joined([stats.tensors[member] for member in members])
        grid = target.grid_for(joint.lo, symmetric=bool(placement.symmetric & set(members)))
        range_ = choose_range(joint, RangeGrid(grid.levels, grid.symmetric, grid.signed), calibration)
        chosen |= dict.fromkeys(
            members, _qparams(range_, target.grid_for(joint.lo, symmetric=grid.symmetric))
        )
        if joint.is_zero:
            notes.append(f"'{name}' was all zero in calibration: its scale is 1")
    return chosen, tuple(notes)


def _joined(parts: list[TensorStats]) -> TensorStats:
    joint = parts[0]
    for part in parts[1:]:
        joint = joint.merge(part)
    return joint


def _qparams(range_: Range, grid: Grid) -> QParams:
    return choose_qparams(
        np.asarray(range_.lo, np.float32),
        np.asarray(range_.hi, np.float32),
        dtype=grid.dtype,
        symmetric=grid.symmetric,
        qmin=grid.qmin,
        qmax=grid.qmax,
    )


def _biases(
    placement: Placement,
    activations: Mapping[str, QParams],
    weights: Mapping[Use, QuantizedTensor],
    operands: Mapping[Use, Array],
) -> dict[Use, QuantizedTensor]:
    """Codes of every bias that the target wants as int32 and that fits its grid."""
    biases: dict[Use, QuantizedTensor] = {}
    for use, (activation, weight) in placement.biases.items():
        grid = bias_qparams(activations[placement.uses[activation]], weights[weight].qparams)
        bias = operands.get(use)
        if bias is None:
            continue
        fits = np.all(np.abs(bias) < grid.scale.astype(np.float64) * grid.qmax)
        if fits:
            biases[use] = QuantizedTensor(quantize_array(bias, grid), grid)
    return biases


def _operands(graph: ir.Model) -> dict[Use, Array]:
    """Every constant operand of every node, as an array view."""
    return {
        (node.name or "", index): value.const_value.numpy()
        for node in graph.graph
        for index, value in enumerate(node.inputs)
        if value is not None
        and value.const_value is not None
        and value.const_value.dtype == ir.DataType.FLOAT
    }
