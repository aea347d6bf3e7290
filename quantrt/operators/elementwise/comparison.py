# SPDX-License-Identifier: Apache-2.0
"""Comparisons, logic and selection; the result of a comparison is bool, broadcast as numpy does."""

from __future__ import annotations

import torch

from quantrt.operators.element_types import restored, stored
from quantrt.operators.elementwise.unsigned import ordered
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "equal", "greater", "greater_or_equal", "less", "less_or_equal", "where"]


def equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a == b."""
    return torch.eq(ordered(a), ordered(b))


def greater(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a > b."""
    return torch.gt(ordered(a), ordered(b))


def greater_or_equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a >= b."""
    return torch.ge(ordered(a), ordered(b))


def less(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a < b."""
    return torch.lt(ordered(a), ordered(b))


def less_or_equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a <= b."""
    return torch.le(ordered(a), ordered(b))


def where(condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x where the condition holds, y elsewhere."""
    return restored(torch.where(condition, stored(x), stored(y)), x.dtype)


OPERATORS = (
    Operator("Equal", 7, equal),
    Operator("Greater", 7, greater),
    Operator("GreaterOrEqual", 12, greater_or_equal),
    Operator("Less", 7, less),
    Operator("LessOrEqual", 12, less_or_equal),
    Operator("And", 7, torch.logical_and),
    Operator("Or", 7, torch.logical_or),
    Operator("Xor", 7, torch.logical_xor),
    Operator("Not", 1, torch.logical_not),
    Operator("Where", 9, where),
)
