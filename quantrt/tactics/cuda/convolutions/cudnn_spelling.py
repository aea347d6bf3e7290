# SPDX-License-Identifier: Apache-2.0
"""The epilogue of a convolution in cuDNN's pointwise operations.

Codes must equal the reference's where IEEE 754 fixes every result. A compiler that makes one multiply-add of
a product and the sum behind it rounds once where the reference rounds twice; a maximum with the least float32
between the two keeps them apart and changes nothing. Codes are quantized there by a correctly rounded
division, elsewhere by a product with the reciprocal. A zero point is added to whole numbers: 1.5 * 2**23,
added before and taken away with it, rounds to those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quantrt.kernels.expression.gelu import find_gelus
from quantrt.plan.cudnn_plan import OPS
from quantrt.regions.expression import Expression, Instruction

__all__ = ["Spelled", "spell"]

Source = tuple[str, float]
"""("constant", its number), ("tensor", its number) or ("scalar", value)."""

LEAST = float(np.finfo(np.float32).min)
ROUNDER = 12582912.0
"""1.5 * 2**23: added to a smaller float32, it rounds that to a whole number, half to even."""

_LEAST_NUMBER, _ROUNDER_NUMBER, _ZERO_NUMBER = -1, -2, -3
"""In place of registers of the expression; behind the last, one for every zero point."""

_SAME = frozenset(OPS) - {"identity", "relu", "gelu", "quotient"}
"""Operations of an expression that cuDNN has under the same name."""

_SQUARE, _CUBE = 2.0, 3.0


@dataclass(frozen=True)
class Spelled:
    """An epilogue as part of a `CudnnGraph`.

    Attributes:
        operands, ops, outputs: see CudnnGraph.
        sources: where each operand comes from.
    """

    operands: tuple[str, ...]
    ops: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[tuple[int, str], ...]
    sources: tuple[Source, ...]


class _Unspeakable(Exception):
    """cuDNN has no word for something; says for what."""


def spell(
    expression: Expression, dtype: str, tensors: Sequence[str], outputs: Sequence[str]
) -> Spelled | str:
    """The epilogue in cuDNN's operations, or why it cannot be said.

    Args:
        dtype: of the convolution's factors.
        tensors: element types of the tensor operands, in their order.
        outputs: element types of the outputs.
    """
    is_exact = dtype == "int8" and "int8" in outputs and expression.is_rounded
    speller = _Speller(expression, tensors, outputs, is_exact=is_exact)
    try:
        return speller.spelled()
    except _Unspeakable as error:
        return str(error)


Register = tuple[str, int]
"""("sums", 0), ("operand", number) or ("op", number)."""

_SUMS: Register = ("sums", 0)


class _Speller:
    """One epilogue on its way.

    Attributes:
        registers: what the expression's registers are here; those that nothing reads are left out.
        codes: results that are rounded to codes when they are stored, and are floats until then.
        numbers: operands with numbers, by the expression's register, whatever they are: layers that differ in
            their scales alone get equal graphs.
    """

    def __init__(
        self, expression: Expression, tensors: Sequence[str], outputs: Sequence[str], *, is_exact: bool
    ) -> None:
        self.expression = expression
        self.outputs = outputs
        self.is_exact = is_exact
        self.kinds: list[str] = []
        self.sources: list[Source] = []
        self.ops: list[tuple[str, tuple[Register, ...]]] = []
        self.registers: dict[int, Register] = {}
        self.codes: set[Register] = set()
        self.numbers: dict[int, Register] = {}
        self.tensors = tuple(tensors)
        first = len(expression.operands)
        values = {i: x.value for i, x in enumerate(expression.operands) if x.kind == "scalar"}
        for number, instruction in enumerate(expression.instructions, first):
            if instruction.op == "const":
                values[number] = instruction.value
        self.values = values
        self.gelus = {} if is_exact or "float32" in outputs else find_gelus(expression, values)

    def spelled(self) -> Spelled:
        """The whole epilogue."""
        expression = self.expression
        first = len(expression.operands)
        for number in self.live():
            if number < first:
                self.registers[number] = self.operand(number)
            else:
                self.registers[number] = self.result(number, expression.instructions[number - first])
        stored = [
            (self.stored(self.registers[row], kind), kind)
            for row, kind in zip(expression.outputs, self.outputs, strict=True)
        ]
        return Spelled(
            tuple(self.kinds),
            tuple((op, tuple(map(self.place, args))) for op, args in self.ops),
            tuple((self.place(register), kind) for register, kind in stored),
            tuple(self.sources),
        )

    def live(self) -> list[int]:
        """Registers that the outputs depend on, in their order; of a GELU, its argument alone."""
        first = len(self.expression.operands)
        found = set(self.expression.outputs)
        for number in range(first + len(self.expression.instructions) - 1, first - 1, -1):
            if number in self.gelus and number in found:
                found.add(self.gelus[number])
            elif number in found:
                found.update(self.expression.instructions[number - first].args)
        return sorted(found)

    def place(self, register: Register) -> int:
        """The register's number in the graph."""
        kind, number = register
        return {"sums": 0, "operand": 1, "op": 1 + len(self.kinds)}[kind] + number

    def operand(self, number: int) -> Register:
        """An operand of the expression; scalars become operands when an operation reads them."""
        operand = self.expression.operands[number]
        place = sum(other.kind == operand.kind for other in self.expression.operands[:number])
        match operand.kind:
            case "accumulator" if number == 0:
                return _SUMS
            case "constant":
                return self.add_operand("channel", ("constant", place))
            case "tensor":
                return self.add_operand(self.tensors[place], ("tensor", place))
            case "scalar":
                return ("value", number)
            case _:
                raise _Unspeakable(f"cuDNN reads no operand of kind '{operand.kind}' behind a convolution")

    def result(self, number: int, instruction: Instruction) -> Register:
        """The result of one instruction."""
        if number in self.gelus:
            return self.add("gelu", self.registers[self.gelus[number]])
        args = [self.registers[arg] for arg in instruction.args]
        if any(arg in self.codes for arg in args):
            raise _Unspeakable("codes are computed with after they were quantized")
        op = instruction.op
        match op:
            case "const":
                return ("value", number)
            case "quantize":
                return self.quantized(args[0], instruction.args[1])
            case "quantize_at":
                return self.quantized(args[0], instruction.args[1], instruction.args[2])
            case "max" if 0.0 in (self.values.get(arg) for arg in instruction.args):
                is_second = self.values.get(instruction.args[1]) == 0.0
                return self.add("relu", args[0] if is_second else args[1])
            case "pow" if self.values.get(instruction.args[1]) in (_SQUARE, _CUBE):
                square = self.add("mul", args[0], args[0])
                is_cube = self.values[instruction.args[1]] == _CUBE
                return self.add("mul", square, args[0]) if is_cube else square
            case _ if op in _SAME:
                return self.add(op, *args)
            case _:
                raise _Unspeakable(f"cuDNN has no pointwise operation for '{op}'")

    def quantized(self, x: Register, scale: int, zero_point: int | None = None) -> Register:
        """Multiples of the scale in a register, which storing rounds to codes; from a zero point on."""
        if scale not in self.values or (zero_point is not None and zero_point not in self.values):
            raise _Unspeakable("codes are quantized by a scale or a zero point that is computed")
        inverse = float(np.float32(1.0) / np.float32(self.values[scale]))
        factor = self.add_operand("scalar", ("scalar", inverse))
        if self.is_exact:
            found = self.add("quotient", x, ("value", scale), factor)
        else:
            found = self.add("mul", x, factor)
        if zero_point is not None:
            zero = self.number(_ZERO_NUMBER - zero_point, self.values[zero_point] - ROUNDER)
            found = self.add("add", self.add("add", found, self.number(_ROUNDER_NUMBER, ROUNDER)), zero)
        self.codes.add(found)
        return found

    def stored(self, register: Register, kind: str) -> Register:
        """A result that may be stored: made by an operation, and read by nothing else."""
        if (kind == "int8") != (register in self.codes):
            raise _Unspeakable("codes are stored that were not quantized here")
        counts = [self.registers[row] for row in self.expression.outputs].count(register)
        is_read = any(register in args for _, args in self.ops)
        if register[0] == "op" and counts == 1 and not is_read:
            return register
        return self.add("identity", register)

    def add(self, op: str, *args: Register) -> Register:
        """One operation more."""
        given = tuple(self.number(n, self.values[n]) if kind == "value" else (kind, n) for kind, n in args)
        if op in ("add", "sub") and self.is_exact:
            given = tuple(map(self.apart, given))
        self.ops.append((op, given))
        return ("op", len(self.ops) - 1)

    def apart(self, register: Register) -> Register:
        """A product kept from becoming part of a multiply-add."""
        kind, number = register
        if kind != "op" or self.ops[number][0] not in ("mul", "neg"):
            return register
        self.ops.append(("max", (register, self.number(_LEAST_NUMBER, LEAST))))
        return ("op", len(self.ops) - 1)

    def number(self, register: int, value: float) -> Register:
        """The operand with the number in a register of the expression."""
        if register not in self.numbers:
            self.numbers[register] = self.add_operand("scalar", ("scalar", float(value)))
        return self.numbers[register]

    def add_operand(self, kind: str, source: Source) -> Register:
        """One operand more."""
        self.kinds.append(kind)
        self.sources.append(source)
        return ("operand", len(self.kinds) - 1)
