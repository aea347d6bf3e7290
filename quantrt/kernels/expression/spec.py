# SPDX-License-Identifier: Apache-2.0
"""An expression as a program of plain numbers, which a kernel takes as one constant.

A program has one row for every instruction, in order: (number of the operation, register, register,
register, value). Registers are numbered as in the expression, so that its outputs need no translation;
registers that an operation does not read are 0, and so is the value of all but "const". The third register
of a row_* instruction counts the row_* instructions before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import lru_cache

from quantrt.errors import InternalError
from quantrt.kernels.expression.gelu import find_gelus
from quantrt.regions.expression import ARITY, QUANTIZE, Expression, Instruction

__all__ = ["OPS", "Program", "flops_of", "needs_exact", "program_of"]

Program = tuple[tuple[int, int, int, int, float], ...]

OPS = (
    *ARITY,
    *("square", "cube", "gelu", "quantize_near", "quantize_at_even", "quantize_at_near"),
    *("quantize_fp8_near", "sub_zero"),
)
"""Every operation; its place is its number. The last are what `program_of` makes of others."""

REMEMBERED = 1024
"""Expressions that are known: every tile of a kernel asks for the same one."""

_POWERS = {2.0: "square", 3.0: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
"""Exponents with an operation of their own: exact or correctly rounded, and cheap."""

_NEAR = {
    "quantize": "quantize_near",
    "quantize_at": "quantize_at_near",
    "quantize_fp8": "quantize_fp8_near",
}
"""What is enough where the reference is not met to the last bit anyway."""

_FLOPS = {
    **dict.fromkeys(("exp", "log", "sqrt", "rsqrt", "reciprocal", "div", "rint", "cube"), 10),
    **dict.fromkeys(("quantize", "quantize_at", "quantize_at_even"), 10),
    **dict.fromkeys(("erf", "tanh", "softplus", "gelu"), 15),
    **dict.fromkeys(("sin", "cos"), 30),
    "sigmoid": 5,
    **dict.fromkeys(("quantize_near", "quantize_at_near"), 4),
    "quantize_fp8": 8,
    "quantize_fp8_near": 2,
    "pow": 100,
    "const": 0,
}
"""Instructions that a GPU needs for one element, roughly; 1 for all others."""


def program_of(expression: Expression, outputs: Collection[str]) -> Program:
    """The instructions of an expression as rows of numbers.

    Args:
        outputs: element types of what is stored.

    Raises:
        InternalError: an instruction reads a register that comes after it.
    """
    return _program(_This(expression), "float32" in outputs)


def needs_exact(expression: Expression, outputs: Collection[str]) -> bool:
    """Whether a kernel must round every operation by itself, for its codes to be the reference's.

    Args:
        outputs: element types of what is stored.
    """
    return expression.is_rounded and not {*QUANTIZE, "bool"}.isdisjoint(outputs)


def flops_of(expression: Expression, outputs: Collection[str]) -> int:
    """Instructions for one element of the iteration shape, roughly: for estimates of time.

    What is computed from constants alone, or from the results of row_* instructions, is left out.

    Args:
        outputs: element types of what is stored.
    """
    wide = [x.kind != "scalar" for x in expression.operands]
    flops = 0
    for instruction in _simplified(_This(expression), "float32" in outputs):
        is_wide = any(wide[arg] for arg in instruction.args)
        flops += _FLOPS.get(instruction.op, 1) if is_wide else 0
        wide.append(is_wide and not instruction.op.startswith("row_"))
    return flops


def _fixed_values(expression: Expression) -> dict[int, float]:
    """Registers whose number is known before launch."""
    operands = {i: x.value for i, x in enumerate(expression.operands) if x.kind == "scalar"}
    first = len(expression.operands)
    consts = {first + i: x.value for i, x in enumerate(expression.instructions) if x.op == "const"}
    return {**operands, **consts}


class _This:
    """One expression as itself: others that are equal may have a zero of another sign."""

    __slots__ = ("expression",)

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    def __hash__(self) -> int:
        return id(self.expression)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _This) and self.expression is other.expression


@lru_cache(maxsize=REMEMBERED)
def _program(this: _This, stores_floats: bool) -> Program:
    first = len(this.expression.operands)
    rows = []
    reductions = 0
    for number, instruction in enumerate(_simplified(this, stores_floats)):
        rows.append(_row(instruction, first + number, reductions))
        reductions += instruction.op.startswith("row_")
    return tuple(rows)


@lru_cache(maxsize=REMEMBERED)
def _simplified(this: _This, stores_floats: bool) -> tuple[Instruction, ...]:
    """Powers with one of the usual exponents as operations of their own; the rest as cheap as may be.

    What only an unread register was for stays, and costs nothing: the compiler drops it.

    Args:
        stores_floats: whether float32 is among what is stored.
    """
    expression = this.expression
    fixed = _fixed_values(expression)
    gelus = {} if stores_floats else find_gelus(expression, fixed)
    first = len(expression.operands)
    zeros = _zero_points(expression)
    simplified = []
    for register, instruction in enumerate(expression.instructions, first):
        power = _POWERS.get(fixed.get(instruction.args[1], 0.0)) if instruction.op == "pow" else None
        if register in gelus:
            simplified.append(Instruction("gelu", (gelus[register],)))
        elif power:
            simplified.append(Instruction(power, instruction.args[:1]))
        elif register in zeros:
            simplified.append(Instruction("sub_zero", instruction.args))
        elif instruction.op == "quantize" and fixed.get(instruction.args[1]) == 1.0:
            simplified.append(Instruction("quantize_near", instruction.args))  # exact: there is no division
        elif instruction.op in _NEAR and not expression.is_rounded:
            simplified.append(Instruction(_NEAR[instruction.op], instruction.args))
        elif instruction.op == "quantize_at" and fixed.get(instruction.args[2], 1.0) % 2.0 == 0.0:
            simplified.append(Instruction("quantize_at_even", instruction.args))
        else:
            simplified.append(instruction)
    return tuple(simplified)


def _zero_points(expression: Expression) -> frozenset[int]:
    """Registers that are an operand less a number, where nothing else reads either of the two.

    Of codes and of their sums that number is a zero point, which costs nothing: both become floats by taking
    a constant off already, see kernels/jit/zero_points.
    """
    first = len(expression.operands)
    kinds = [operand.kind for operand in expression.operands]
    reads = Counter((*expression.outputs, *(arg for x in expression.instructions for arg in x.args)))
    found = []
    for register, instruction in enumerate(expression.instructions, first):
        is_plain = instruction.op == "sub" and all(
            arg < first and reads[arg] == 1 for arg in instruction.args
        )
        if is_plain and kinds[instruction.args[0]] in ("accumulator", "tensor"):
            if kinds[instruction.args[1]] in ("scalar", "constant"):
                found.append(register)
    return frozenset(found)


def _row(instruction: Instruction, register: int, reductions: int) -> tuple[int, int, int, int, float]:
    if any(arg >= register for arg in instruction.args):
        raise InternalError(
            f"'{instruction.op}' reads a register that is not computed yet",
            got=str(instruction.args),
            expected=f"registers below {register}",
        )
    a, b, c = (*instruction.args, 0, 0, 0)[:3]
    if instruction.op.startswith("row_"):
        c = reductions
    return OPS.index(instruction.op), a, b, c, float(instruction.value)
