# SPDX-License-Identifier: Apache-2.0
"""Region + forms -> Workload: what it reads and stores, and its constants, those of scales among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.errors import InternalError
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.scales.qparams import QuantizedTensor
from quantrt.regions.expression import Expression
from quantrt.regions.formula_expression import expression_of
from quantrt.regions.region import (
    Attention,
    Concat,
    Conv,
    ConvTranspose,
    Formula,
    Gemm,
    GroupNorm,
    LinearAttention,
    Pool,
    Region,
    Resize,
    Rows,
)
from quantrt.regions.strength import reduce_strength
from quantrt.tactics.cuda.forms.coded_expression import (
    ACCUMULATOR_SCALES,
    TABLE_CODES,
    TABLE_SCALES,
    lower_expression,
)
from quantrt.tactics.cuda.forms.epilogues import ACCUMULATOR_ZEROS
from quantrt.tactics.cuda.forms.forms import CODES, FLOAT, Forms
from quantrt.tactics.cuda.tactic import TensorFacts, Workload

__all__ = ["Lowered", "lower_region"]

Array = np.ndarray[Any, Any]

STORING = Gemm | Conv | ConvTranspose | Pool | Resize | GroupNorm | Rows | Attention
"""Formulas whose results are stored in the forms that are asked for."""


@dataclass(frozen=True)
class Lowered:
    """A region in its forms, before shapes are known.

    Attributes:
        inputs: (value, form) of each slot.
        outputs: (value, form) of each stored output.
        types: element type of each stored output.
        weight, constants: as in Workload.
    """

    region: Region
    formula: Formula
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    types: tuple[str, ...]
    weight: Array | None = None
    constants: Mapping[str, Array] | None = None

    def workload(self, inputs: Sequence[TensorFacts], pitches: Sequence[int] = ()) -> Workload:
        """The workload at the shapes of `inputs`.

        Args:
            pitches: of the outputs, as in Workload.
        """
        return Workload(
            self.region.name,
            self.formula,
            tuple(inputs),
            self.types,
            self.weight,
            dict(self.constants or {}),
            tuple(pitches) if any(pitches) else (),
        )


def lower_region(
    region: Region, graph: ir.Graph, forms: Forms, quantized: QuantizedModel | None, float_type: str
) -> Lowered:
    """One region whose formula is a product, an expression or attention.

    Args:
        float_type: numpy's name of the type that floats are stored in.
    """
    inputs = forms.reads[region.name]
    outputs = tuple((value, form) for value in region.outputs for form in _forms_of(value, forms, region))
    types = tuple(_type(value, form, forms, float_type) for value, form in outputs)
    if isinstance(region.formula, Concat | LinearAttention):
        return Lowered(region, region.formula, inputs, outputs, types)
    if isinstance(region.formula, Attention):
        name, attention = region.formula.mask_constant, region.formula.epilogue
        epilogue = lower_expression(attention, region, (), outputs, forms, tables={}, has_scale=False)
        formula: Formula = replace(region.formula, epilogue=epilogue)
        masks = {name: _array(graph, name)} if name else None
        return Lowered(region, formula, inputs, outputs, types, constants=masks)
    expression = expression_of(region.formula)
    if expression is None:
        raise InternalError(f"region '{region.name}' has no formula to lower")
    weight, scale, zero = _weight(region.formula, inputs, forms, quantized, graph)
    constants = _constants(expression, graph)
    if isinstance(region.formula, GroupNorm):
        constants = {name: _by_channel(array, region.formula.channels) for name, array in constants.items()}
    halves = 2 if isinstance(region.formula, Gemm) and region.formula.is_gated else 1
    constants |= _split(ACCUMULATOR_SCALES, scale, halves) | _split(ACCUMULATOR_ZEROS, zero, halves)
    tables, codes = _tables(expression, graph, quantized, float_type)
    constants |= tables
    lowered = lower_expression(
        reduce_strength(expression),
        region,
        inputs,
        outputs,
        forms,
        tables=codes,
        has_scale=scale is not None,
        has_zero=zero is not None,
    )
    formula = _with_expression(region.formula, lowered, _pad_code(region.formula, inputs, forms))
    return Lowered(region, formula, inputs, outputs, types, weight, constants)


def _split(names: Sequence[str], array: Array | None, parts: int) -> dict[str, Array]:
    """An array in parts by name, the left one first; nothing where there is none."""
    return {} if array is None else dict(zip(names, np.split(array, parts), strict=False))


def _forms_of(value: str, forms: Forms, region: Region) -> tuple[str, ...]:
    """What the region stores of a value; a value that nothing reads is stored as floats."""
    stored = forms.stored.get(value) or (FLOAT,)
    if isinstance(region.formula, Concat):
        return (forms.reads[region.name][0][1],)
    if value in forms.constraints and isinstance(region.formula, STORING):
        return (CODES if forms.has_codes_alone(value) else FLOAT,)
    return stored if isinstance(region.formula, STORING) else (FLOAT,)


def _type(value: str, form: str, forms: Forms, float_type: str) -> str:
    if form == CODES:
        return forms.code_type(value)
    return "bool" if value in forms.bools else forms.float_type(value, float_type)


def _weight(
    formula: Formula,
    inputs: tuple[tuple[str, str], ...],
    forms: Forms,
    quantized: QuantizedModel | None,
    graph: ir.Graph,
) -> tuple[Array | None, Array | None, Array | None]:
    """The weight; for codes the scale of every output channel's sums, and what x's zero point adds.

    Beside floats a weight that has codes is the floats that these stand for.
    """
    if not isinstance(formula, Gemm | Conv | ConvTranspose):
        return None, None, None
    value, form = inputs[0]
    tensor = None if quantized is None else quantized.weights.get(formula.w)
    if tensor is None:
        return _array(graph, formula.weight), None, None
    if form == FLOAT:
        return tensor.dequantize(), None, None
    scale = np.float32(forms.scales[value]) * np.asarray(tensor.qparams.scale, np.float32)
    is_first = isinstance(formula, Conv) or (isinstance(formula, Gemm) and formula.is_transposed)
    channels = tensor.codes.shape[0 if is_first else 1]
    scales = np.ascontiguousarray(np.broadcast_to(scale.reshape(-1), (channels,)))
    zero_point = forms.zero_points.get(value, 0)
    if not zero_point:
        return tensor.codes, scales, None
    if isinstance(formula, ConvTranspose):
        raise InternalError(f"'{value}' has a zero point, and a transposed convolution reads it")
    rows = tensor.codes if is_first else tensor.codes.T
    zeros = zero_point * rows.reshape(channels, -1).sum(axis=1, dtype=np.int64)
    return tensor.codes, scales, zeros.astype(np.float32)


def _pad_code(formula: Formula, inputs: tuple[tuple[str, str], ...], forms: Forms) -> int:
    """The code of 0 on the grid of x, where padding counts."""
    is_padded = isinstance(formula, Conv) or (isinstance(formula, Pool) and formula.counts_padding)
    if not is_padded or not isinstance(formula, Conv | Pool) or not any(formula.pads):
        return 0
    value, form = inputs[0]
    return forms.zero_points.get(value, 0) if form == CODES else 0


def _constants(expression: Expression, graph: ir.Graph) -> dict[str, Array]:
    names = dict.fromkeys(x.name for x in expression.operands if x.kind == "constant")
    return {name: np.asarray(_array(graph, name), np.float32) for name in names}


def _by_channel(array: Array, channels: int) -> Array:
    """What has a number for every group of channels, with one for every channel."""
    repeats = channels // array.size if 1 < array.size < channels else 1
    return np.repeat(array.reshape(-1), repeats) if repeats > 1 else array


def _tables(
    expression: Expression, graph: ir.Graph, quantized: QuantizedModel | None, float_type: str
) -> tuple[dict[str, Array], dict[int, QuantizedTensor]]:
    """Constants of the lookups by name, and which of them are codes, by operand."""
    arrays: dict[str, Array] = {}
    codes: dict[int, QuantizedTensor] = {}
    for number in expression.lookups:
        operand = expression.operands[number]
        tensor = None if quantized is None else quantized.weights.get(operand.use)
        if tensor is None:
            arrays[operand.name] = _array(graph, operand.name).astype(float_type)
            continue
        codes[number] = tensor
        arrays[operand.name + TABLE_CODES] = tensor.codes
        if tensor.qparams.axis is not None:
            arrays[operand.name + TABLE_SCALES] = np.asarray(tensor.qparams.scale, np.float32).reshape(-1, 1)
    return arrays, codes


def _array(graph: ir.Graph, name: str) -> Array:
    tensor = graph.initializers[name].const_value
    if tensor is None:
        raise InternalError(f"constant '{name}' has no value")
    return tensor.numpy()


def _with_expression(formula: Formula, expression: Expression, pad_code: int) -> Formula:
    if isinstance(formula, Rows):
        return Rows(expression)
    if isinstance(formula, Conv | Pool):
        return replace(formula, epilogue=expression, pad_code=pad_code)
    if isinstance(formula, Gemm | ConvTranspose | Resize | GroupNorm):
        return replace(formula, epilogue=expression)
    return formula
