# SPDX-License-Identifier: Apache-2.0
"""Functions of one tensor, element by element: signs, rounding, powers, logarithms, trigonometry."""

from __future__ import annotations

import torch

from quantrt.operators.elementwise.cast import widen
from quantrt.operators.elementwise.unsigned import is_wide_unsigned
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "absolute", "is_inf", "is_nan", "negative", "sign"]


def absolute(x: torch.Tensor) -> torch.Tensor:
    """|x|; the smallest signed integer stays negative, as two's complement has it."""
    return x if is_wide_unsigned(x) else torch.abs(x)


def negative(x: torch.Tensor) -> torch.Tensor:
    """-x."""
    return torch.neg(x)


def sign(x: torch.Tensor) -> torch.Tensor:
    """-1, 0 or 1; NaN stays NaN, which torch would make 0."""
    if is_wide_unsigned(x):
        return (x != 0).to(x.dtype)
    signs = torch.sign(x)
    return torch.where(torch.isnan(x), x, signs) if x.is_floating_point() else signs


def is_inf(x: torch.Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> torch.Tensor:
    """Whether x is infinite with one of the signs asked for, bool."""
    wide = widen(x)
    found = torch.zeros_like(wide, dtype=torch.bool)
    if detect_positive:
        found = found | torch.isposinf(wide)
    if detect_negative:
        found = found | torch.isneginf(wide)
    return found


def is_nan(x: torch.Tensor) -> torch.Tensor:
    """Whether x is not a number, bool."""
    return torch.isnan(widen(x))


OPERATORS = (
    Operator("Abs", 6, absolute),
    Operator("Neg", 6, negative),
    Operator("Sign", 9, sign),
    Operator("Ceil", 6, torch.ceil),
    Operator("Floor", 6, torch.floor),
    Operator("Round", 11, torch.round),  # half to even
    Operator("Exp", 6, torch.exp),
    Operator("Log", 6, torch.log),
    Operator("Sqrt", 6, torch.sqrt),
    Operator("Reciprocal", 6, torch.reciprocal),
    Operator("Erf", 9, torch.erf),
    Operator("Sin", 7, torch.sin),
    Operator("Cos", 7, torch.cos),
    Operator("Tan", 7, torch.tan),
    Operator("Asin", 7, torch.asin),
    Operator("Acos", 7, torch.acos),
    Operator("Atan", 7, torch.atan),
    Operator("Sinh", 9, torch.sinh),
    Operator("Cosh", 9, torch.cosh),
    Operator("Asinh", 9, torch.asinh),
    Operator("Acosh", 9, torch.acosh),
    Operator("Atanh", 9, torch.atanh),
    Operator("IsInf", 10, is_inf),
    Operator("IsNaN", 9, is_nan),
)
