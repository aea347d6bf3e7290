# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on unsigned integers of 16, 32 and 64 bits, which torch stores but does not compute with.

Sums, differences and products are the same bits signed or unsigned. 16 and 32 bits are otherwise computed
in a wider signed type. 64 bits have none: their order is that of the signed numbers with the top bit flipped,
and their quotient comes from halving the dividend (Hacker's Delight, 2nd edition, section 9-3).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from quantrt.operators.element_types import restored, stored

__all__ = ["divide", "is_wide_unsigned", "ordered", "wrapping"]

_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64}
_TOP_BIT = -(2**63)


def is_wide_unsigned(x: torch.Tensor) -> bool:
    """Whether `x` has one of the types this file is about."""
    return x.dtype in (torch.uint16, torch.uint32, torch.uint64)


def wrapping(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], a: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """`function` of a and b modulo two to the width of their type; for +, - and *."""
    return restored(function(stored(a), stored(b)), a.dtype)


def ordered(x: torch.Tensor) -> torch.Tensor:
    """Signed numbers in the same order as the unsigned ones of `x`; `x` itself for other types."""
    if x.dtype == torch.uint64:
        return x.view(torch.int64) ^ _TOP_BIT
    return x.to(_WIDER[x.dtype]) if x.dtype in _WIDER else x


def divide(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quotient, rounded down, and remainder of two unsigned tensors of one type."""
    if a.dtype in _WIDER:
        wide_a, wide_b = a.to(_WIDER[a.dtype]), b.to(_WIDER[a.dtype])
        quotient = torch.div(wide_a, wide_b, rounding_mode="floor")
        return quotient.to(a.dtype), (wide_a - quotient * wide_b).to(a.dtype)
    n, d = a.view(torch.int64) + torch.zeros_like(b.view(torch.int64)), b.view(torch.int64)
    halved = (n >> 1) & (2**63 - 1)
    positive = d > 0
    safe = torch.where(positive, d, torch.ones_like(d))
    guess = torch.div(halved, safe, rounding_mode="floor") << 1
    guess = torch.where(positive, guess, torch.zeros_like(guess))
    rest = n - guess * d
    above = (rest ^ _TOP_BIT) >= (d ^ _TOP_BIT)
    quotient, remainder = guess + above, torch.where(above, rest - d, rest)
    return quotient.view(torch.uint64), remainder.view(torch.uint64)
