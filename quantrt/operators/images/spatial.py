# SPDX-License-Identifier: Apache-2.0
"""Pads of convolutions and pools: explicit or by auto_pad, one pair (before, after) per spatial axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from quantrt.errors import ModelError

__all__ = ["Window", "make_window", "pad_spatial"]


@dataclass(frozen=True)
class Window:
    """A sliding window, each field one entry per spatial axis.

    Attributes:
        before, after: elements added to the input; negative ones are cut off.
        is_same: auto_pad SAME_*: the output has ceil(input / stride) elements.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    is_same: bool

    @property
    def extents(self) -> tuple[int, ...]:
        """Input elements from the first to the last one that a window touches."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def is_symmetric(self) -> bool:
        """Whether each axis is padded alike on both sides, and nothing is cut off."""
        return self.before == self.after and min(self.before, default=0) >= 0


def make_window(
    sizes: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
) -> Window:
    """The window over an input of spatial `sizes`, absent attributes filled in.

    Raises:
        ModelError: attributes of the wrong length, or an unknown auto_pad.
    """
    rank = len(sizes)
    strides = tuple(strides or [1] * rank)
    dilations = tuple(dilations or [1] * rank)
    pads = tuple(pads or [0] * (2 * rank))
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ModelError(
            "kernel, strides, dilations and pads do not fit the input",
            got=f"kernel {kernel}, strides {strides}, dilations {dilations}, pads {pads}",
            expected=f"{rank} spatial axes",
        )
    if auto_pad == "NOTSET":
        before, after = pads[:rank], pads[rank:]
    elif auto_pad == "VALID":
        before = after = (0,) * rank
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        totals = [
            max((-(-n // s) - 1) * s + e - n, 0) for n, s, e in zip(sizes, strides, extents, strict=True)
        ]
        less, more = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        before, after = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    else:
        raise ModelError("unknown auto_pad", got=auto_pad, expected="NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    return Window(tuple(kernel), strides, dilations, before, after, auto_pad.startswith("SAME"))


def pad_spatial(x: torch.Tensor, before: Sequence[int], after: Sequence[int]) -> torch.Tensor:
    """x [N, C, ...] with each spatial axis padded, or cut where a count is negative."""
    amounts = [n for pair in reversed(list(zip(before, after, strict=True))) for n in pair]
    return functional.pad(x, amounts) if any(amounts) else x
