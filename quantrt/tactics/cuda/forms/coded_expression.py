# SPDX-License-Identifier: Apache-2.0
"""An expression over floats -> the same over codes: scales become operands, (de)quantization instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quantrt.dtypes import INT8
from quantrt.quantize.scales.qparams import QuantizedTensor
from quantrt.regions.expression import QUANTIZE, QUANTIZE_AT, Expression, Instruction, Operand
from quantrt.regions.region import Conv, ConvTranspose, Formula, Gemm, GroupNorm, Pool, Region, Resize
from quantrt.tactics.cuda.forms.epilogues import ACCUMULATOR_ZEROS, unclipped
from quantrt.tactics.cuda.forms.forms import CODES, FLOAT, Forms
from quantrt.tactics.cuda.forms.grids import CodeStep

__all__ = ["ACCUMULATOR_SCALES", "TABLE_CODES", "TABLE_SCALES", "lower_expression"]

ACCUMULATOR_SCALES = ("accumulator scale", "accumulator scale, right half")
"""The constants that turn the sums of products of codes into floats: s_x * s_w[n], float32 [N]; the second
for the right half of a gate."""

TABLE_CODES, TABLE_SCALES = " codes", " scales"
"""What follows the name of a table that is quantized: int8 [V, C], and float32 [V, 1]."""


def lower_expression(
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
