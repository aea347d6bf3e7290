# SPDX-License-Identifier: Apache-2.0
"""From statistics to numbers: a grid for every quantized edge of a model, for one target."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.given import Given
from quantrt.calibrate.ranges.grid import Grid as RangeGrid
from quantrt.calibrate.ranges.ranges import choose_range
from quantrt.calibrate.stats import Stats, TensorStats
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import DataError, ModelError
from quantrt.ir.edit import is_operator
from quantrt.model.model import Model
from quantrt.quantize.algorithms.balance_tables import balance_tables
from quantrt.quantize.algorithms.bias_correction import ChannelMeans, correct_biases
from quantrt.quantize.algorithms.told_apart import ALL, told_apart
from quantrt.quantize.placement.known_ranges import place_known
from quantrt.quantize.placement.levels import attention_note
from quantrt.quantize.placement.place_by_config import place_by_config
from quantrt.quantize.quantized_model import Placement, QuantizedModel, Use
from quantrt.quantize.scales.kept_scales import KeptScales
from quantrt.quantize.scales.qparams import (
    QParams,
    QuantizedTensor,
    bias_qparams,
    choose_qparams,
    given_qparams,
    quantize_array,
    quantize_weight,
)
from quantrt.quantize.target import Grid, Target
from quantrt.threads import usable_cores

__all__ = [
    "observed_values",
    "quantize",
    "weight_codes",
    "with_activations",
    "with_integer_biases",
    "with_weights",
]

Array = np.ndarray[Any, Any]

PER_CHANNEL_OPSET = 13
"""From here on QuantizeLinear and DequantizeLinear have an axis."""

NO_DATA = "calibration data: there are none"
"""Where a range would be, in the reasons of what stays float beside scales of each row."""

MAX_BIAS_CODE = 1 << 29
"""Largest int32 code of a bias before its correction: a quarter of the range is left for that."""


def observed_values(model: Model, targets: tuple[Target, ...], config: QuantizeConfig) -> tuple[str, ...]:
    """Names of the activations that any of the targets quantizes: what calibration must tap."""
    placements = [place_by_config(model.graph, target, config) for target in targets]
    return tuple(sorted(frozenset().union(*(placement.values for placement in placements))))


def quantize(
    model: Model,
    stats: Stats | None,
    target: Target,
    config: QuantizeConfig,
    calibration: CalibrationConfig,
    *,
    means: ChannelMeans | None = None,
    given: Given | None = None,
    like: QuantizedModel | None = None,
    kept_float: Mapping[str, str] | None = None,
    scales: KeptScales | None = None,
) -> QuantizedModel:
    """Quantize a float model for one target.

    Args:
        stats: observed activations, with an entry for each value the target quantizes; with `given` scales
            they fill the gaps. What has neither keeps its readers float; all beside scales of rows may.
        means: channel means of layer inputs, for bias correction; None leaves the biases as they are.
        like: the same model on other ranges: its weights serve again, where ranges do not enter them.
        kept_float: names of further nodes that stay float, with the reason; not with `given` scales.
        scales: of weights, that earlier builds found.

    Raises:
        DataError: a value was not observed, and no scales are given; names it.
        UsageError: an exclusion matches nothing.
    """
    observed, known = {} if stats is None else stats.tensors, {} if given is None else given.scales
    told: tuple[str, ...] = ()
    if given is not None:
        placement = place_known(model.graph, target, config, {*known, *observed}, given.source).placement
    elif stats is None and config.activations == "per-token":
        placement, told = _without_data(model, target, config)
    else:
        placement = _placed(model, target, config, observed, kept_float)
    activations, notes = _activations(placement, observed, target, calibration, known, graph=model.graph)
    is_per_channel = config.per_channel and model.graph.opset_imports.get("", 0) >= PER_CHANNEL_OPSET
    axes = {use: axis if is_per_channel else None for use, axis in placement.weights.items()}
    if like is not None and like.placement.weights == placement.weights and not placement.biases:
        graph, weights = like.graph, like.weights
    else:
        graph = balance_tables(model.graph, axes)
        floors = _least_weight_scales(placement, activations, axes, _operands(graph))
        weights = weight_codes(graph, axes, target, floors, scales)
        graph = graph if means is None else correct_biases(graph, weights, means)
    return QuantizedModel(
        model=model,
        graph=graph,
        target=target,
        placement=placement,
        activations=activations,
        weights=weights,
        biases=_biases(placement, activations, weights, _operands(graph)),
        notes=(*told, *notes, *attention_note(graph.graph, config, placement, target)),
    )


def weight_codes(
    graph: ir.Model,
    axes: Mapping[Use, int | None],
    target: Target,
    floors: Mapping[Use, Array] | None = None,
    scales: KeptScales | None = None,
) -> dict[Use, QuantizedTensor]:
    """Codes of constant operands.

    Args:
        graph: floats, tables balanced.
        axes: of their scales.
        floors: the least scales of some.
        scales: that earlier builds found.

    Raises:
        ModelError: one has NaN or infinite values; names its node.
    """
    operands = _operands(graph)
    types = {node.name or "": node.op_type for node in graph.graph}
    least = floors or {}

    def quantized(use: Use) -> QuantizedTensor:
        dtype, qmax = target.weight_codes(types[use[0]])
        try:
            return quantize_weight(
                operands[use], axis=axes[use], dtype=dtype, qmax=qmax, min_scale=least.get(use), kept=scales
            )
        except ModelError as error:
            raise _named(error, use[0], operands[use]) from error

    with ThreadPoolExecutor(usable_cores()) as pool:  # numpy computes without Python's lock
        return dict(zip(axes, pool.map(quantized, axes), strict=True))


def _named(error: ModelError, node: str, weight: np.ndarray) -> ModelError:
    """Why a weight cannot be quantized, with its node and where it is not finite."""
    wrong = np.argwhere(~np.isfinite(weight))
    if not len(wrong):
        return error
    return ModelError(
        f"cannot quantize the weight of node '{node}'",
        got=f"{len(wrong)} of {weight.size} values NaN or infinite, the first at {wrong[0].tolist()}",
        expected="numbers",
        hint="exporting the model again from a checkpoint whose weights are finite",
    )


def with_activations(quantized: QuantizedModel, activations: Mapping[str, QParams]) -> QuantizedModel:
    """The model with other grids for its activations; integer biases follow them."""
    biases = _biases(quantized.placement, activations, quantized.weights, _operands(quantized.graph))
    return replace(quantized, activations=activations, biases=biases)


def with_integer_biases(quantized: QuantizedModel) -> QuantizedModel:
    """The model with int32 codes for every bias that they can hold, whatever its target wants.

    ONNX Runtime multiplies in integers only beside such a bias; beside one of floats it decodes weights and
    activations in every run. A code is the unit of the sums, scale(activation) * scale(weight).
    """
    if quantized.target.activation.dtype.is_float or quantized.placement.biases:
        return quantized
    biases = {
        (name, 2): ((name, 0), (name, 1))
        for node in quantized.graph.graph
        if is_operator(node, "Conv", "Gemm")
        for name in [node.name or ""]
        if (name, 0) in quantized.placement.uses and (name, 1) in quantized.weights
    }
    placement = replace(quantized.placement, biases=biases)
    operands = _operands(quantized.graph)
    codes = _biases(placement, quantized.activations, quantized.weights, operands)
    return replace(quantized, placement=placement, biases=codes)


def with_weights(
    quantized: QuantizedModel,
    weights: Mapping[Use, QuantizedTensor],
    floats: ir.Model,
    means: ChannelMeans | None,
) -> QuantizedModel:
    """The model with other codes for its weights; biases are corrected for these.

    Args:
        floats: the float graph that was rounded.
        means: channel means of layer inputs in it; None leaves the biases as they are.
    """
    graph = balance_tables(floats, {use: tensor.qparams.axis for use, tensor in weights.items()})
    graph = graph if means is None else correct_biases(graph, weights, means)
    biases = _biases(quantized.placement, quantized.activations, weights, _operands(graph))
    return replace(quantized, graph=graph, weights=weights, biases=biases)


def _without_data(model: Model, target: Target, config: QuantizeConfig) -> tuple[Placement, tuple[str, ...]]:
    """What has scales of rows, in 8 bits; and a note of what static scales would add."""
    found = place_known(model.graph, target, config, (), NO_DATA)
    lost = list(dict.fromkeys((*(node for nodes in found.costs.values() for node in nodes), *found.others)))
    if not lost:
        return found.placement, ()
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return found.placement, (f"float, for want of calibration data: '{lost[0]}'{more}",)


def _placed(
    model: Model,
    target: Target,
    config: QuantizeConfig,
    observed: Mapping[str, TensorStats],
    kept_float: Mapping[str, str] | None,
) -> Placement:
    """All that the configuration wants, every value of it observed."""
    placement = place_by_config(model.graph, target, config, kept_float)
    missing = sorted(name for name in placement.values if name not in observed)
    if missing:
        raise DataError(
            f"no range for {len(missing)} of {len(placement.values)} activations, such as '{missing[0]}'",
            hint="calibrating this model again, with these exclusions and this version",
        )
    return placement


def _activations(
    placement: Placement,
    observed: Mapping[str, TensorStats],
    target: Target,
    calibration: CalibrationConfig,
    given: Mapping[str, float],
    *,
    graph: ir.Model,
) -> tuple[dict[str, QParams], tuple[str, ...]]:
    """One grid per quantized value, the same for all of its group; and what to tell the user."""
    group_of = {name: group for group in placement.groups for name in group}
    read = told_apart(graph.graph, placement.values)
    chosen: dict[str, QParams] = {}
    notes: list[str] = []
    for name in sorted(placement.values):
        members = sorted(group_of.get(name, frozenset([name])))
        if name != members[0]:
            continue
        parts = [observed[member] for member in members if member not in given]
        if len(parts) < len(members):
            scale = max(given[member] for member in members if member in given)
            grid = placement.grids.get(name) or target.grid_for(-scale, scale, symmetric=True)
            chosen |= dict.fromkeys(members, _given_qparams(scale, parts, grid))
            continue
        joint = _joined(parts)
        grid = placement.grids.get(name) or target.grid_for(
            joint.lo, joint.hi, symmetric=bool(placement.symmetric & set(members))
        )
        lo, hi = _bounds(joint, grid, calibration)
        ends = [read.get(member, ALL) for member in members]
        lo, hi = max(lo, min(least for least, _ in ends)), min(hi, max(most for _, most in ends))
        chosen |= dict.fromkeys(members, _qparams(lo, hi, grid))
        if joint.is_zero:
            notes.append(f"'{name}' was all zero in calibration: its scale is 1")
    if target.activation.dtype.is_float and calibration.method not in ("auto", "minmax"):
        notes.append(
            f"{target.precision} takes whole ranges: method '{calibration.method}' is for integers alone"
        )
    return chosen, tuple(notes)


def _bounds(joint: TensorStats, grid: Grid, calibration: CalibrationConfig) -> tuple[float, float]:
    """What is kept of a tensor: of float codes everything, for their error is in proportion to each value."""
    if grid.dtype.is_float:
        return joint.lo, joint.hi
    range_ = choose_range(joint, RangeGrid(grid.levels, grid.symmetric, grid.signed), calibration)
    return range_.lo, range_.hi


def _given_qparams(scale: float, parts: list[TensorStats], grid: Grid) -> QParams:
    """The grid of a given int8 scale, widened to hold observed values that must share it.

    Of float codes it is the grid whose largest number stands for the value of code 127.
    """
    for part in parts:
        amax = np.float32(max(-part.lo, part.hi))
        scale = max(scale, float(amax / np.float32(127)))
    if grid.dtype.is_float:
        scale = float(np.float32(scale) * np.float32(127) / np.float32(grid.qmax))
    return given_qparams(scale, dtype=grid.dtype, qmin=grid.qmin, qmax=grid.qmax)


def _joined(parts: list[TensorStats]) -> TensorStats:
    joint = parts[0]
    for part in parts[1:]:
        joint = joint.merge(part)
    return joint


def _qparams(lo: float, hi: float, grid: Grid) -> QParams:
    return choose_qparams(
        np.asarray(lo, np.float32),
        np.asarray(hi, np.float32),
        dtype=grid.dtype,
        symmetric=grid.symmetric,
        qmin=grid.qmin,
        qmax=grid.qmax,
        zero_point_unit=grid.zero_point_unit,
    )


def _least_weight_scales(
    placement: Placement,
    activations: Mapping[str, QParams],
    axes: Mapping[Use, int | None],
    operands: Mapping[Use, Array],
) -> dict[Use, Array]:
    """For each weight beside a bias that becomes int32: the scales below which the bias would overflow.

    A channel of (nearly) zero weights has a scale far too small for its bias. Its weights do not matter, so
    they get the scale on which the bias is most precise.
    """
    floors: dict[Use, Array] = {}
    for use, (activation, weight) in placement.biases.items():
        bias, axis = operands.get(use), axes[weight]
        row = None if bias is None else _per_channel(bias, operands[weight].shape, placement.weights[weight])
        if row is not None:
            step = activations[placement.uses[activation]].scale.astype(np.float64)
            floor = np.abs(row.astype(np.float64)) / (step * MAX_BIAS_CODE)
            floors[weight] = floor if axis is not None else floor.max(initial=0.0)
    return floors


def _biases(
    placement: Placement,
    activations: Mapping[str, QParams],
    weights: Mapping[Use, QuantizedTensor],
    operands: Mapping[Use, Array],
) -> dict[Use, QuantizedTensor]:
    """Codes of every bias that the target wants as int32 and that fits its grid."""
    biases: dict[Use, QuantizedTensor] = {}
    for use, (activation, weight) in placement.biases.items():
        bias = operands.get(use)
        row = (
            None
            if bias is None
            else _per_channel(bias, weights[weight].codes.shape, placement.weights[weight])
        )
        grid = bias_qparams(activations[placement.uses[activation]], weights[weight].qparams)
        if row is not None and np.all(np.abs(row) < grid.scale.astype(np.float64) * grid.qmax):
            biases[use] = QuantizedTensor(quantize_array(row, grid), grid)
    return biases


def _per_channel(bias: Array, weight_shape: tuple[int, ...], axis: int | None) -> Array | None:
    """A bias as one value per output channel; None when it differs along another axis."""
    if axis is None:
        return None
    channels = weight_shape[axis]
    if bias.size == 1:
        return np.full(channels, bias.reshape(-1)[0])
    return bias.reshape(-1) if bias.size == channels and bias.shape[-1] == channels else None


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
