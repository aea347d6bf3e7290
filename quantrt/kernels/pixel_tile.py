# SPDX-License-Identifier: Apache-2.0
"""How work over the pixels of channels-last images is cut where nothing is multiplied by a matrix."""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.kernels.epilogue.spec import WARP

__all__ = ["PixelTile"]


@dataclass(frozen=True)
class PixelTile:
    """What one program has.

    Attributes:
        block_m, block_n: output pixels and channels; where whole images are pooled, pixels of x at a time.
    """

    block_m: int
    block_n: int
    num_warps: int

    @property
    def name(self) -> str:
        """As tactics are named: "32x64 w4"."""
        return f"{self.block_m}x{self.block_n} w{self.num_warps}"

    @property
    def elements(self) -> int:
        """Of one thread."""
        return self.block_m * self.block_n // (WARP * self.num_warps)
