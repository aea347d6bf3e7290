# SPDX-License-Identifier: Apache-2.0
"""An expression, written instruction by instruction."""

from __future__ import annotations

from collections.abc import Sequence

from quantrt.regions.expression import Expression, Instruction, Operand

__all__ = ["ExpressionBuilder", "Register"]

Register = int
"""Of a builder: operand i is -1 - i, instruction i is i; `build` numbers them as an Expression does."""


class ExpressionBuilder:
    """Operands and instructions so far; equal ones are made once."""

    def __init__(self) -> None:
        self.operands: list[Operand] = []
        self.instructions: list[Instruction] = []
        self._known: dict[object, Register] = {}

    def operand(
        self, kind: str, name: str = "", use: tuple[str, int] = ("", 0), *, is_shared: bool = True
    ) -> Register:
        """The register of an operand; a value that is read twice has one, with the use that came first.

        Args:
            is_shared: False keeps the operand to readings of this edge: lookups are found by theirs.
        """
        key = (kind, name) if is_shared else (kind, name, use)
        if key not in self._known:
            self.operands.append(Operand(kind, name, use))
            self._known[key] = -len(self.operands)
        return self._known[key]

    def const(self, value: float) -> Register:
        """The register of a number."""
        return self._add(Instruction("const", (), float(value)))

    def op(self, name: str, *args: Register) -> Register:
        """The register of an operation's result."""
        return self._add(Instruction(name, args))

    def tensor_count(self) -> int:
        """How many tensor operands there are."""
        return sum(operand.kind == "tensor" for operand in self.operands)

    def build(self, outputs: Sequence[Register], row_outputs: Sequence[bool]) -> Expression:
        """The expression that stores `outputs`."""
        instructions = tuple(
            Instruction(x.op, tuple(self._number(arg) for arg in x.args), x.value) for x in self.instructions
        )
        numbers = tuple(self._number(register) for register in outputs)
        return Expression(tuple(self.operands), instructions, numbers, tuple(row_outputs))

    def _add(self, instruction: Instruction) -> Register:
        key = (instruction.op, instruction.args, repr(instruction.value))  # 0.0 == -0.0, nan != nan
        if key not in self._known:
            self.instructions.append(instruction)
            self._known[key] = len(self.instructions) - 1
        return self._known[key]

    def _number(self, register: Register) -> int:
        return -1 - register if register < 0 else len(self.operands) + register
