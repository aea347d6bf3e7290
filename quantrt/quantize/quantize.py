# SPDX-License-Identifier: Apache-2.0
"""From statistics to numbers: a grid for every quantized edge of a model, for one target."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.ranges import Range, choose_range
from quantrt.calibrate.ranges import Grid as RangeGrid
from quantrt.calibrate.stats import Stats, TensorStats
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import DataError
from quantrt.model.model import Model
from quantrt.quantize.placement import place
from quantrt.quantize.qparams import QParams, QuantizedTensor, bias_qparams, choose_qparams, quantize_array, quantize_weight
from quantrt.quantize.quantized_model import Placement, QuantizedModel, Use
from quantrt.quantize.target import Target

__all__ = ["observed_values", "quantize"]

log = logging.getLogger(__name__)


def observed_values(model: Model, targets: tuple[Target, ...], config: QuantizeConfig) -> tuple[str, ...]:
    """Names of the activations that any of the targets quantizes: what calibration must tap."""
    placements = [
        place(model.graph, target, exclude=config.exclude, exclude_types=config.exclude_types) for target in targets
    ]
    return tuple(sorted(frozenset().union(*(placement.values for placement in placements))))


def quantize(
    model: Model, stats: Stats, target: Target, config: QuantizeConfig, calibration: CalibrationConfig
) -> QuantizedModel:
    """Quantize a float model for one target.

    Args:
        stats: observed activations, with an entry for each value the target quantizes.

    Raises:
        DataError: a value was not observed; names it.
        UsageError: an exclusion matches nothing.
    """
    placement = place(model.graph, target, exclude=config.exclude, exclude_types=config.exclude_types)
    ranges = choose_ranges(placement, stats, target, calibration)
    activations = {name: _activation_qparams(range_, target) for name, range_ in ranges.items()}
    operands = _operands(model.graph)
    weights = {
        use: quantize_weight(
            operands[use], axis=axis if config.per_channel else None, qmax=target.weight_qmax
        )
        for use, axis in placement.weights.items()
    }
    notes = [f"'{name}' was all zero in calibration: its scale is 1" for name, r in ranges.items() if r.lo == r.hi == 0]
    quantized = QuantizedModel(
        model=model,
        graph=model.graph,
        target=target,
        placement=placement,
        activations=activations,
        weights=weights,
        notes=tuple(notes),
    )
    return with_biases(quantized, operands)


def with_biases(quantized: QuantizedModel, operands: Mapping[Use, np.ndarray]) -> QuantizedModel:
    """Give every bias the target wants as int32 its codes."""
    biases: dict[Use, QuantizedTensor] = {}
    for use, (activation, weight) in quantized.placement.biases.items():
        grid = bias_qparams(
            quantized.activations[quantized.placement.uses[activation]], quantized.weights[weight].qparams
        )
        bias = operands.get(use)
        if bias is not None:
            biases[use] = QuantizedTensor(quantize_array(bias, grid), grid)
    from dataclasses import replace

    return replace(quantized, biases=biases)


def choose_ranges(
    placement: Placement, stats: Stats, target: Target, calibration: CalibrationConfig
) -> dict[str, Range]:
    """One range per quantized value; values of one group get the range of their joint statistics."""
    missing = sorted(name for name in placement.values if name not in stats.tensors)
    if missing:
        raise DataError(
            f"no range for {len(missing)} of {len(placement.values)} activations, such as '{missing[0]}'",
            hint="calibrating this model again",
        )
    grid = RangeGrid(target.activation.levels, target.activation.symmetric, target.activation.signed)
    group_of = {name: group for group in placement.groups for name in group}
    ranges: dict[str, Range] = {}
    for name in sorted(placement.values):
        if name in ranges:
            continue
        members = sorted(group_of.get(name, frozenset([name])))
        joint = _joined([stats.tensors[member] for member in members])
        chosen = choose_range(joint, grid, calibration)
        ranges |= dict.fromkeys(members, chosen)
    return ranges


def _joined(parts: list[TensorStats]) -> TensorStats:
    joint = parts[0]
    for part in parts[1:]:
        joint = joint.merge(part)
    return joint


def _activation_qparams(range_: Range, target: Target) -> QParams:
    grid = target.activation
    return choose_qparams(
        np.float32(range_.lo),
        np.float32(range_.hi),
        dtype=grid.dtype,
        symmetric=grid.symmetric,
        qmin=grid.qmin,
        qmax=grid.qmax,
    )


def _operands(graph: ir.Model) -> dict[Use, np.ndarray]:
    """Every constant operand of every node, as an array view."""
    return {
        (node.name or "", index): value.const_value.numpy()
        for node in graph.graph
        for index, value in enumerate(node.inputs)
        if value is not None and value.const_value is not None
    }
