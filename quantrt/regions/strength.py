# SPDX-License-Identifier: Apache-2.0
"""Divisions by what is the same for a whole row, or for every element, as products with the reciprocal.

A correctly rounded division costs some twenty instructions for every element, a product one. The result
differs by at most one unit in the last place of float32; the rewritten expression is what is computed, by the
reference too.
"""

from __future__ import annotations

import struct

from quantrt.regions.expression import Expression, Instruction

__all__ = ["reduce_strength"]


def reduce_strength(expression: Expression) -> Expression:
    """The expression with such divisions replaced."""
    first = len(expression.operands)
    invariant = {number for number, operand in enumerate(expression.operands) if operand.kind == "scalar"}
    moved = {number: number for number in range(first)}
    inverses: dict[int, int] = {}
    made: list[Instruction] = []

    def add(instruction: Instruction) -> int:
        made.append(instruction)
        return first + len(made) - 1

    for number, instruction in enumerate(expression.instructions):
        register = first + number
        if instruction.op.startswith("row_") or all(arg in invariant for arg in instruction.args):
            invariant.add(register)
        a, b = (*instruction.args, -1, -1)[:2]
        if instruction.op != "div" or b not in invariant or a in invariant:
            args = tuple(moved[arg] for arg in instruction.args)
            moved[register] = add(Instruction(instruction.op, args, instruction.value))
            continue
        if b not in inverses:
            inverses[b] = add(_inverse(made[moved[b] - first] if moved[b] >= first else None, moved[b]))
        moved[register] = add(Instruction("mul", (moved[a], inverses[b])))
    outputs = tuple(moved[register] for register in expression.outputs)
    return Expression(expression.operands, tuple(made), outputs, expression.row_outputs)


def _inverse(divisor: Instruction | None, register: int) -> Instruction:
    """The reciprocal of a register; of a number, a number."""
    if divisor is None or divisor.op != "const" or divisor.value == 0.0:
        return Instruction("reciprocal", (register,))
    return Instruction("const", (), _float32(1.0 / _float32(divisor.value)))


def _float32(value: float) -> float:
    """The nearest float32."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded
