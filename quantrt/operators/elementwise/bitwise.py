# SPDX-License-Identifier: Apache-2.0
"""Bits of integers; types that torch stores but does not compute with are signed ones of the same width."""

from __future__ import annotations

from collections.abc import Callable

import torch

from quantrt.operators.element_types import restored, stored
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "bit_shift", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"]


def bitwise_and(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a & b."""
    return _of_bits(torch.bitwise_and, a, b)


def bitwise_or(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a | b."""
    return _of_bits(torch.bitwise_or, a, b)


def bitwise_xor(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a ^ b."""
    return _of_bits(torch.bitwise_xor, a, b)


def bitwise_not(a: torch.Tensor) -> torch.Tensor:
    """~a."""
    return _of_bits(torch.bitwise_not, a)


def bit_shift(a: torch.Tensor, b: torch.Tensor, *, direction: str) -> torch.Tensor:
    """a << b or a >> b, whose sign moves in from above where the type has one.

    A count below 0, or of all bits of the type or more, leaves nothing but that sign.
    """
    bits = 8 * a.element_size()
    x, shift = stored(a), stored(b)  # a count that is negative so is huge as the unsigned one that it was
    is_within = (shift >= 0) & (shift < bits)
    count = torch.where(is_within, shift, torch.zeros_like(shift))
    if direction == "LEFT":
        shifted, rest = torch.bitwise_left_shift(x, count), torch.zeros_like(x)
    elif a.dtype.is_signed:
        shifted, rest = torch.bitwise_right_shift(x, count), torch.bitwise_right_shift(x, bits - 1)
    else:
        shifted, rest = _shift_zeros_in(x, count, bits), torch.zeros_like(x)
    return restored(torch.where(is_within, shifted, rest), a.dtype)


def _shift_zeros_in(x: torch.Tensor, count: torch.Tensor, bits: int) -> torch.Tensor:
    """x >> count of an unsigned number that is stored as `x`."""
    moved = torch.bitwise_right_shift(x, count)
    if x.dtype == torch.uint8:
        return moved
    below = torch.bitwise_left_shift(torch.ones_like(x), (bits - count).clamp(max=bits - 1)) - 1
    return torch.where(count > 0, moved & below, moved)


def _of_bits(function: Callable[..., torch.Tensor], *given: torch.Tensor) -> torch.Tensor:
    return restored(function(*map(stored, given)), given[0].dtype)


OPERATORS = (
    Operator("BitwiseAnd", 18, bitwise_and),
    Operator("BitwiseOr", 18, bitwise_or),
    Operator("BitwiseXor", 18, bitwise_xor),
    Operator("BitwiseNot", 18, bitwise_not),
    Operator("BitShift", 11, bit_shift),
)
