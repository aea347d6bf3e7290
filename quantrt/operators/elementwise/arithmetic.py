# SPDX-License-Identifier: Apache-2.0
"""Add, Sub, Mul, Div, Mod, Pow, and Max, Min, Sum, Mean of any number of tensors; numpy's broadcasting."""

from __future__ import annotations

from functools import reduce

import torch

from quantrt.operators.element_types import restored, stored
from quantrt.operators.elementwise.unsigned import divide, is_wide_unsigned, ordered, wrapping
from quantrt.operators.operator import Operator

__all__ = [
    "OPERATORS",
    "add",
    "div",
    "maximum",
    "mean_of",
    "minimum",
    "mod",
    "mul",
    "pow_",
    "sub",
    "sum_of",
]


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a + b; integers wrap."""
    return wrapping(torch.add, a, b)


def sub(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a - b; integers wrap."""
    return wrapping(torch.sub, a, b)


def mul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a * b; integers wrap."""
    return wrapping(torch.mul, a, b)


def div(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a / b; the quotient of integers loses its fraction."""
    if is_wide_unsigned(a):
        return divide(a, b)[0]
    return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def mod(a: torch.Tensor, b: torch.Tensor, *, fmod: int = 0) -> torch.Tensor:
    """a - b * q, where q is a / b rounded down (fmod 0: the sign of b) or to zero (fmod 1: the sign of a)."""
    if is_wide_unsigned(a):
        return divide(a, b)[1]
    if fmod:
        return torch.fmod(a, b)
    if not a.is_floating_point():
        return torch.remainder(a, b)
    rest = torch.remainder(a, b)
    # A remainder of zero has the sign of b, which torch's does not always have.
    return torch.where(rest == 0, torch.copysign(torch.zeros_like(rest), b), rest)


def pow_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x ** y in the type of x; an integer to a fractional power goes through float64."""
    if x.is_floating_point():
        wide = torch.promote_types(x.dtype, y.dtype)
        return torch.pow(x.to(wide), y.to(wide)).to(x.dtype)
    if y.is_floating_point():
        return torch.pow(x.to(torch.float64), y.to(torch.float64)).to(x.dtype)
    return torch.pow(x, y.to(x.dtype))


def maximum(*tensors: torch.Tensor) -> torch.Tensor:
    """The largest of the tensors, element by element; NaN where one is NaN."""
    return reduce(_larger, tensors)


def minimum(*tensors: torch.Tensor) -> torch.Tensor:
    """The smallest of the tensors, element by element; NaN where one is NaN."""
    return reduce(_smaller, tensors)


def sum_of(*tensors: torch.Tensor) -> torch.Tensor:
    """The sum of the tensors."""
    return reduce(torch.add, tensors)


def mean_of(*tensors: torch.Tensor) -> torch.Tensor:
    """The sum of the tensors, divided by their number."""
    return sum_of(*tensors) / len(tensors)


def _larger(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if is_wide_unsigned(a):
        return restored(torch.where(ordered(a) >= ordered(b), stored(a), stored(b)), a.dtype)
    return torch.maximum(a, b)


def _smaller(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if is_wide_unsigned(a):
        return restored(torch.where(ordered(a) <= ordered(b), stored(a), stored(b)), a.dtype)
    return torch.minimum(a, b)


OPERATORS = (
    Operator("Add", 7, add),
    Operator("Sub", 7, sub),
    Operator("Mul", 7, mul),
    Operator("Div", 7, div),
    Operator("Mod", 10, mod),
    Operator("Pow", 7, pow_),
    Operator("Max", 8, maximum),
    Operator("Min", 8, minimum),
    Operator("Sum", 8, sum_of),
    Operator("Mean", 8, mean_of),
)
