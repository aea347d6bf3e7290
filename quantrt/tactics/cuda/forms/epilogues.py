# SPDX-License-Identifier: Apache-2.0
"""Epilogues taken apart: what a library's product takes with it, and the expression that remains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from quantrt.regions.expression import Expression, Instruction, Operand

__all__ = [
    "ACCUMULATOR_ZEROS",
    "Split",
    "as_rows",
    "has_zero_point",
    "is_relu",
    "is_residual_relu",
    "scaled_accumulator",
    "split_bias",
    "unclipped",
]

_LEAST_CODE, _LARGEST_CODE = -128, 127

ACCUMULATOR_ZEROS = ("accumulator zero", "accumulator zero, right half")
"""The constants that are taken off the sums of products of codes: z_x * sum of w[n], float32 [N]; the second
for the right half of a gate."""


@dataclass(frozen=True)
class Split:
    """An epilogue as bias and rest.

    Attributes:
        bias: name of the constant that is added to the accumulator first; empty without one.
        rest: operand 0 is the accumulator with the bias.
    """

    bias: str
    rest: Expression


def has_zero_point(expression: Expression) -> bool:
    """Whether a zero point is taken off its sums of products of codes.

    They are far larger than what remains of them: rounded to float16, they are lost.
    """
    return any(operand.name in ACCUMULATOR_ZEROS for operand in expression.operands)


def split_bias(expression: Expression) -> Split:
    """Take the bias off, where the accumulator is read by nothing but the addition of a constant."""
    first = len(expression.operands)
    readers = [i for i, x in enumerate(expression.instructions) if 0 in x.args]
    if len(readers) == 1 and 0 not in expression.outputs:
        instruction = expression.instructions[readers[0]]
        other = next((arg for arg in instruction.args if arg != 0), 0)
        if instruction.op == "add" and 0 < other < first and expression.operands[other].kind == "constant":
            rest = _without(expression, {first + readers[0]: 0})
            return Split(expression.operands[other].name, rest)
    return Split("", expression)


def unclipped(expression: Expression, register: int, scale: float, zero_point: int) -> int:
    """The register that has the same int8 codes, before it was clipped to what the codes reach anyway.

    Rounding is monotone: a bound whose code is the least or the largest one clips nothing more. So a ReLU is
    for nothing where the code of 0 is the least.
    """
    first = len(expression.operands)
    while register >= first:
        step = expression.instructions[register - first]
        if step.op not in ("max", "min"):
            break
        bounds = [(arg, _number(expression, arg)) for arg in step.args]
        ends = [
            number for number, (_, bound) in enumerate(bounds) if _is_end(step.op, bound, scale, zero_point)
        ]
        if not ends:
            break
        register = bounds[1 - ends[0]][0]
    return register


def _is_end(op: str, bound: float | None, scale: float, zero_point: int) -> bool:
    """Whether a maximum or minimum with a bound has no other codes than without."""
    if bound is None:
        return False
    with np.errstate(over="ignore"):  # a bound far away has the code of infinity
        code = float(np.rint(np.float32(bound) / np.float32(scale))) + zero_point
    return code <= _LEAST_CODE if op == "max" else code >= _LARGEST_CODE


def _number(expression: Expression, register: int) -> float | None:
    """What a register is, where that is a number."""
    first = len(expression.operands)
    if register < first:
        operand = expression.operands[register]
        return operand.value if operand.kind == "scalar" else None
    step = expression.instructions[register - first]
    return step.value if step.op == "const" else None


def scaled_accumulator(expression: Expression, scale: float) -> Expression:
    """The same for an accumulator that arrives as a multiple: its first instruction multiplies by `scale`."""
    first = len(expression.operands)

    def moved(register: int) -> int:
        if register == 0:
            return first + 1
        return register if register < first else register + 2

    head = Instruction("mul", (0, first))
    body = (replace(x, args=tuple(map(moved, x.args))) for x in expression.instructions)
    return replace(
        expression,
        operands=(*expression.operands, Operand("scalar", value=scale)),
        instructions=(head, *body),
        outputs=tuple(map(moved, expression.outputs)),
    )


def as_rows(expression: Expression) -> Expression:
    """The expression over accumulators that were stored: they are tensors."""
    stored = (Operand("tensor") if x.kind == "accumulator" else x for x in expression.operands)
    return replace(expression, operands=tuple(stored))


def is_relu(expression: Expression) -> bool:
    """Whether its only output is max(operand 0, 0)."""
    return len(expression.outputs) == 1 and _relu_argument(expression) == 0


def is_residual_relu(expression: Expression) -> bool:
    """Whether its only output is max(operand 0 + tensor, 0) with the one tensor that it has."""
    first = len(expression.operands)
    tensors = [i for i, operand in enumerate(expression.operands) if operand.kind == "tensor"]
    inner = _relu_argument(expression) if len(expression.outputs) == 1 else None
    if inner is None or inner < first or len(tensors) != 1:
        return False
    addition = expression.instructions[inner - first]
    return addition.op == "add" and sorted(addition.args) == [0, tensors[0]]


def _relu_argument(expression: Expression) -> int | None:
    """The register whose positive part is the first output; None where that is something else."""
    first = len(expression.operands)
    if expression.outputs[0] < first:
        return None
    last = expression.instructions[expression.outputs[0] - first]
    if last.op != "max":
        return None
    a, b = last.args
    if _is_zero(expression, b):
        return a
    return b if _is_zero(expression, a) else None


def _is_zero(expression: Expression, register: int) -> bool:
    return _number(expression, register) == 0.0


def _without(expression: Expression, same: Mapping[int, int]) -> Expression:
    """The expression with registers replaced by equal ones, and without what is then read by nothing.

    Operand 0 and tensors stay: they are inputs of the region.
    """
    first = len(expression.operands)
    outputs = tuple(same.get(register, register) for register in expression.outputs)
    args = [tuple(same.get(arg, arg) for arg in x.args) for x in expression.instructions]
    live = set(outputs)
    for number in reversed(range(len(args))):
        if first + number in live:
            live.update(args[number])
    kept = [i for i, x in enumerate(expression.operands) if i == 0 or x.kind == "tensor" or i in live]
    steps = [i for i in range(len(args)) if first + i in live]
    place = {old: new for new, old in enumerate([*kept, *(first + i for i in steps)])}
    return replace(
        expression,
        operands=tuple(expression.operands[i] for i in kept),
        instructions=tuple(
            replace(expression.instructions[i], args=tuple(place[arg] for arg in args[i])) for i in steps
        ),
        outputs=tuple(place[register] for register in outputs),
    )
