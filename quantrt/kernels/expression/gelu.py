# SPDX-License-Identifier: Apache-2.0
"""x / 2 * (1 + erf(x / sqrt(2))), however its factors are ordered: found, to be computed in one step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from quantrt.regions.expression import Expression, Instruction

__all__ = ["find_gelus"]

TOLERANCE = 1e-6


def find_gelus(expression: Expression, fixed: Mapping[int, float]) -> dict[int, int]:
    """The register of x, by the register of each GELU of it.

    Args:
        fixed: registers whose number is known, with it.
    """
    first = len(expression.operands)
    instructions = dict(enumerate(expression.instructions, first))
    gates = {}
    for register, instruction in instructions.items():
        if instruction.op != "add":
            continue
        for one, other in (instruction.args, instruction.args[::-1]):
            of = instructions.get(other)
            if fixed.get(one) == 1.0 and of is not None and of.op == "erf":
                for x, factor in _scaled(of.args[0], instructions, fixed):
                    if abs(factor * math.sqrt(2.0) - 1.0) < TOLERANCE:
                        gates[register] = x
    return {
        register: gates[gate]
        for register in (instructions if gates else ())  # most expressions have none
        for gate, x in _products(register, instructions, fixed)
        if gates.get(gate) == x
    }


def _products(
    register: int, instructions: Mapping[int, Instruction], fixed: Mapping[int, float]
) -> Iterator[tuple[int, int]]:
    """Every (a, b) with register = a * b / 2."""
    for whole, factor in _scaled(register, instructions, fixed):
        product = instructions.get(whole)
        if product is None or product.op != "mul":
            continue
        for left, right in (product.args, product.args[::-1]):
            for a, a_factor in _scaled(left, instructions, fixed):
                if abs(factor * a_factor - 0.5) < TOLERANCE:
                    yield a, right
                    yield right, a


def _scaled(
    register: int, instructions: Mapping[int, Instruction], fixed: Mapping[int, float]
) -> Iterator[tuple[int, float]]:
    """The register as itself times 1, and as another times a number."""
    yield register, 1.0
    instruction = instructions.get(register)
    if instruction is not None and instruction.op == "mul":
        for a, b in (instruction.args, instruction.args[::-1]):
            if b in fixed:
                yield a, fixed[b]
