# SPDX-License-Identifier: Apache-2.0
"""Which tiles are worth timing for tensors side by side: as wide as the widest, enough for the device."""

from __future__ import annotations

from collections.abc import Sequence

from quantrt.gpu import GpuFacts
from quantrt.kernels.concat.spec import Run, TileConfig

__all__ = ["configs"]

MAX_CONFIGS = 4
MIN_COLUMNS, MAX_COLUMNS = 8, 512
WORDS = (512, 1024, 2048, 256)
"""Of one program at a time, with WARPS: two to sixteen of eight bytes for each thread."""

WARPS = 4


def configs(runs: Sequence[Run], device: GpuFacts) -> tuple[TileConfig, ...]:
    """At most MAX_CONFIGS tiles, those first of which there are enough for every multiprocessor.

    Args:
        runs: of the inputs, in words.
    """
    widest = max((run.columns for run in runs), default=1)
    columns = min(MAX_COLUMNS, max(MIN_COLUMNS, 1 << (widest - 1).bit_length() if widest > 1 else 1))
    rows = max((run.rows for run in runs), default=1)
    tiles = dict.fromkeys(
        TileConfig(max(1, min(words // columns, 1 << (rows - 1).bit_length())), columns, WARPS)
        for words in WORDS
    )
    fill = device.multiprocessors

    def lacks(tile: TileConfig) -> int:
        return max(0, fill - -(-rows // tile.rows) * -(-widest // tile.columns))

    return tuple(sorted(tiles, key=lacks))[:MAX_CONFIGS]
