# SPDX-License-Identifier: Apache-2.0
"""Region + forms -> Workload: scales become operands, dequantization and quantization become instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.dtypes import INT8
from quantrt.errors import InternalError
from quantrt.quantize.qparams import QuantizedTensor
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.regions.expression import QUANTIZE, QUANTIZE_AT, Expression, Instruction, Operand
from quantrt.regions.region import (
    Attention,
    Concat,
    Conv,
    ConvTranspose,
    Formula,
    Gemm,
    GroupNorm,
    Pool,
    Region,
    Resize,
    Rows,
)
from quantrt.regions.strength import reduce_strength
from quantrt.tactics.cuda.epilogues import ACCUMULATOR_ZEROS, unclipped
from quantrt.tactics.cuda.forms import CODES, FLOAT, CodeStep, Forms, expression_of
from quantrt.tactics.cuda.tactic import TensorFacts, Workload

__all__ = ["Lowered", "lower_region"]

Array = np.ndarray[Any, Any]

ACCUMULATOR_SCALES = ("accumulator scale", "accumulator scale, right half")
"""The constants that turn the sums of products of codes into floats: s_x * s_w[n], float32 [N]; the second
for the right half of a gate."""

STORING = Gemm | Conv | ConvTranspose | Pool | Resize | GroupNorm | Rows | Attention
"""Formulas whose results are stored in the forms that are asked for."""

TABLE_CODES, TABLE_SCALES = " codes", " scales"
"""What follows the name of a table that is quantized: int8 [V, C], and float32 [V, 1]."""


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

    def workload(self, inputs: Sequence[TensorFacts]) -> Workload:
        """The workload at the shapes of `inputs`."""
        return Workload(
            self.region.name,
            self.formula,
            tuple(inputs),
            self.types,
            self.weight,
            dict(self.constants or {}),
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
    if isinstance(region.formula, Concat):
        return Lowered(region, region.formula, inputs, outputs, types)
    if isinstance(region.formula, Attention):
        name = region.formula.mask_constant
        masks = {name: _array(graph, name)} if name else None
        epilogue = _lower(region.formula.epilogue, region, (), outputs, forms, tables={}, has_scale=False)
        formula = replace(region.formula, epilogue=epilogue)
        return Lowered(region, formula, inputs, outputs, types, constants=masks)
    expression = expression_of(region)
    if expression is None:
        raise InternalError(f"region '{region.name}' has no formula to lower")
    weight, scale, zero = _weight(region.formula, inputs, forms, quantized, graph)
    constants = _constants(expression, graph)
    if isinstance(region.formula, GroupNorm):
        constants = {name: _by_channel(array, region.formula.channels) for name, array in constants.items()}
    is_gated = isinstance(region.formula, Gemm) and region.formula.is_gated
    if scale is not None:
        scales = np.split(scale, 2) if is_gated else [scale]
        constants.update(zip(ACCUMULATOR_SCALES, scales, strict=False))
    if zero is not None:
        zeros = np.split(zero, 2) if is_gated else [zero]
        constants.update(zip(ACCUMULATOR_ZEROS, zeros, strict=False))
    tables, codes = _tables(expression, graph, quantized, float_type)
    constants |= tables
    lowered = _lower(
        reduce_strength(expression),
        region,
        inputs,
        outputs,
        forms,
        tables=codes,
        has_scale=scale is not None,
        has_zero=zero is not None,
    )
    return Lowered(
        region,
        _with_expression(region.formula, lowered, _pad_code(region.formula, inputs, forms)),
        inputs,
        outputs,
        types,
        weight,
        constants,
    )


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
    """The weight; for codes the scale of every output channel's sums, and what x's zero point adds."""
    if not isinstance(formula, Gemm | Conv | ConvTranspose):
        return None, None, None
    value, form = inputs[0]
    if form == FLOAT or quantized is None:
        return _array(graph, formula.weight), None, None
    tensor = quantized.weights[formula.w]
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


def _lower(
    expression: Expression,
    region: Region,
    inputs: tuple[tuple[str, str], ...],
    outputs: tuple[tuple[str, str], ...],
    forms: Forms,
    *,
    tables: Mapping[int, QuantizedTensor],
    has_scale: bool,
    has_zero: bool = False,
) -> Expression:
    """The expression over what is read, to what is stored.

    Args:
        tables: those of its lookups that are codes, by operand.
    """
    tensor_inputs = inputs[_read_first(region.formula) :]
    builder = _Builder(expression)
    if has_scale:
        builder.scale_accumulators(has_zero=has_zero)
    numbers = [region.outputs.index(value) for value, _ in outputs]
    steps = [None if form == FLOAT else forms.grid(value) for value, form in outputs]
    types = [forms.code_type(value) for value, _ in outputs]
    is_moved = isinstance(region.formula, Pool | Resize)
    step = forms.grid(inputs[0][0]) if is_moved and inputs[0][1] == CODES else None
    is_code = [
        step is not None and _is_maximum(region.formula, expression.outputs[number]) and stored == step
        for number, stored in zip(numbers, steps, strict=True)
    ]
    if step is not None and not all(is_code):
        builder.dequantize_accumulator(step)
    builder.dequantize(tensor_inputs, forms)
    for number, tensor in tables.items():
        builder.dequantize_rows(number, tensor)
    builder.copy_instructions()
    for number, stored, dtype, is_stored_as_it_is in zip(numbers, steps, types, is_code, strict=True):
        if is_stored_as_it_is:
            builder.store_accumulator()
        else:
            builder.store(expression.outputs[number], expression.row_outputs[number], stored, dtype)
    return builder.build()


def _read_first(formula: Formula) -> int:
    """How many inputs a formula reads before the tensors of its expression."""
    if isinstance(formula, GroupNorm):
        return 1 if formula.shift is None else 2
    return int(isinstance(formula, Gemm | Conv | ConvTranspose | Pool | Resize))


def _is_maximum(formula: Formula, register: int) -> bool:
    """Whether a register is one of the elements that were pooled, before anything is computed."""
    is_moved = isinstance(formula, Pool) and formula.kind == "max"
    return (is_moved or (isinstance(formula, Resize) and formula.is_nearest)) and register == 0


class _Builder:
    """An expression with more operands and instructions than the one it is made from.

    New operands stand behind the old ones, so registers of instructions move; `self.of` maps old to new.
    """

    def __init__(self, expression: Expression) -> None:
        self.source = expression
        self.operands = list(expression.operands)
        self.instructions: list[tuple[str, tuple[Any, ...], float]] = []
        self.of: dict[int, Any] = {number: ("operand", number) for number in range(len(expression.operands))}
        self.outputs: list[tuple[Any, bool]] = []

    def _operand(self, operand: Operand) -> tuple[str, int]:
        self.operands.append(operand)
        return ("operand", len(self.operands) - 1)

    def _add(self, op: str, args: tuple[Any, ...], value: float = 0.0) -> tuple[str, int]:
        self.instructions.append((op, args, value))
        return ("instruction", len(self.instructions) - 1)

    def scale_accumulators(self, *, has_zero: bool) -> None:
        """Sums of codes, less what their zero point makes of them, times the scale of their channel."""
        sums = [n for n, operand in enumerate(self.source.operands) if operand.kind == "accumulator"]
        names = zip(ACCUMULATOR_SCALES, ACCUMULATOR_ZEROS, strict=True)
        for number, (scale_name, zero_name) in zip(sums, names, strict=False):
            result: tuple[str, int] = ("operand", number)
            if has_zero:
                result = self._add("sub", (result, self._operand(Operand("constant", zero_name))))
            scale = self._operand(Operand("constant", scale_name))
            self.of[number] = self._add("mul", (result, scale))

    def dequantize_accumulator(self, step: CodeStep) -> None:
        """Operand 0, a maximum or mean of codes, as a float."""
        self.of[0] = self._dequantized(0, step)

    def _dequantized(self, number: int, step: CodeStep) -> tuple[str, int]:
        """(an operand of codes - their zero point) * their scale."""
        scale, zero_point = step
        result: tuple[str, int] = ("operand", number)
        if zero_point:
            result = self._add("sub", (result, self._operand(Operand("scalar", value=float(zero_point)))))
        return self._add("mul", (result, self._operand(Operand("scalar", value=scale))))

    def store_accumulator(self) -> None:
        """Store operand 0 as it is: a code of the grid that it is stored on."""
        self.outputs.append((("operand", 0), False))

    def dequantize(self, inputs: tuple[tuple[str, str], ...], forms: Forms) -> None:
        """Tensor operands that arrive as codes, as floats."""
        tensors = [n for n, operand in enumerate(self.source.operands) if operand.kind == "tensor"]
        for number, (value, form) in zip(tensors, inputs, strict=True):
            if form == CODES:
                self.of[number] = self._dequantized(number, forms.grid(value))

    def dequantize_rows(self, number: int, table: QuantizedTensor) -> None:
        """Rows of a table of codes, times the scale of each row or of the table."""
        operand = self.operands[number]
        self.operands[number] = replace(operand, name=operand.name + TABLE_CODES)
        if table.qparams.axis is None:
            scale = self._operand(Operand("scalar", value=float(table.qparams.scale)))
        else:
            scale = self._operand(replace(operand, name=operand.name + TABLE_SCALES))
        self.of[number] = self._add("mul", (("operand", number), scale))

    def copy_instructions(self) -> None:
        """The source's instructions, on the registers where their arguments are now."""
        first = len(self.source.operands)
        for number, instruction in enumerate(self.source.instructions):
            args = tuple(self.of[arg] for arg in instruction.args)
            self.of[first + number] = self._add(instruction.op, args, instruction.value)

    def store(self, register: int, is_row: bool, step: CodeStep | None, dtype: str) -> None:
        """Store a register of the source, as codes of a type when a grid is given."""
        if step is not None and dtype == INT8.name:
            register = unclipped(self.source, register, *step)
        result = self.of[register]
        if step is not None:
            scale = self._operand(Operand("scalar", value=step[0]))
            if step[1]:
                zero_point = self._operand(Operand("scalar", value=float(step[1])))
                result = self._add(QUANTIZE_AT, (result, scale, zero_point))
            else:
                result = self._add(QUANTIZE[dtype], (result, scale))
        self.outputs.append((result, is_row))

    def build(self) -> Expression:
        """Number the registers."""

        def number(register: tuple[str, int]) -> int:
            return register[1] if register[0] == "operand" else len(self.operands) + register[1]

        return Expression(
            tuple(self.operands),
            tuple(Instruction(op, tuple(map(number, args)), value) for op, args, value in self.instructions),
            tuple(number(register) for register, _ in self.outputs),
            tuple(is_row for _, is_row in self.outputs),
        )


def _with_expression(formula: Formula, expression: Expression, pad_code: int) -> Formula:
    if isinstance(formula, Rows):
        return Rows(expression)
    if isinstance(formula, Conv | Pool):
        return replace(formula, epilogue=expression, pad_code=pad_code)
    if isinstance(formula, Gemm | ConvTranspose | Resize | GroupNorm):
        return replace(formula, epilogue=expression)
    return formula
