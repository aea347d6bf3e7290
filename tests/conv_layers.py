# SPDX-License-Identifier: Apache-2.0
"""Convolutions as layers of networks have them, for tests of tiles and of machine code."""

from dataclasses import replace
from typing import Any

from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.regions.expression import IDENTITY


def layer(size: int, C: int, N: int, taps: int = 3, **changes: Any) -> ConvProblem:
    """32 images of size x size, windows of taps x taps, as many pixels out; codes in and out, no epilogue.

    Args:
        changes: fields that are something else.
    """
    pads = (taps // 2,) * 4
    plain = ConvProblem(
        32, size, size, C, N, taps, taps, (1, 1), pads, (1, 1), "int8", IDENTITY, (), ("int8",)
    )
    return replace(plain, **changes)
