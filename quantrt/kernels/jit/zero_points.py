# SPDX-License-Identifier: Apache-2.0
"""Operands of an expression as float32, less the zero points that are taken off codes among them.

A code becomes a float in its last digits, and a constant is taken off then: the zero point goes with that.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from quantrt.kernels.expression.spec import OPS
from quantrt.kernels.jit.codes import CODE_OFFSET, raw_float, to_float

__all__ = ["operands_of", "zero_point_of"]

SUB_ZERO = tl.constexpr(OPS.index("sub_zero"))


@triton.jit
def operands_of(program: tl.constexpr, registers):
    """The operands as float32.

    Where a zero point is taken off a code, it takes with it what a code is too large by in the digits of a
    float: whole numbers below 2**24, so that nothing is rounded.
    """
    known = ()
    for i in tl.static_range(len(registers)):
        known = known + (_operand(program, i, registers),)
    return known


@triton.jit
def _operand(program: tl.constexpr, i: tl.constexpr, registers):
    codes: tl.constexpr = _codes_of(program, i)
    if zero_point_of(program, i) >= 0 and _is_code(registers[i]):
        y = raw_float(registers[i])
    elif codes >= 0 and _is_code(registers[codes]):
        y = to_float(registers[i]) + CODE_OFFSET
    else:
        y = to_float(registers[i])
    return y


@triton.constexpr_function
def zero_point_of(program, register):
    """The register that `sub_zero` takes off an operand; -1 where it takes off none."""
    return next((int(row[2]) for row in program if row[0] == SUB_ZERO and row[1] == register), -1)


@triton.constexpr_function
def _codes_of(program, register):
    """The operand that `sub_zero` takes a register off; -1 where there is none."""
    return next((int(row[1]) for row in program if row[0] == SUB_ZERO and row[2] == register), -1)


@triton.constexpr_function
def _is_code(x):
    return isinstance(x, tl.tensor) and x.dtype == tl.int8
