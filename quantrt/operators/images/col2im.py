# SPDX-License-Identifier: Apache-2.0
"""Col2Im: blocks laid over an image, added where they overlap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch

from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "col2im"]


def col2im(
    x: torch.Tensor,
    image_shape: torch.Tensor,
    block_shape: torch.Tensor,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> torch.Tensor:
    """[N, C * prod(block), blocks] to [N, C, *image]: the reverse of taking windows out of an image."""
    image: list[int] = image_shape.tolist()
    block: list[int] = block_shape.tolist()
    rank = len(image)
    steps, gaps, pads = strides or [1] * rank, dilations or [1] * rank, pads or [0] * (2 * rank)
    sizes = [size + pads[i] + pads[rank + i] for i, size in enumerate(image)]
    counts = [(sizes[i] - gaps[i] * (block[i] - 1) - 1) // steps[i] + 1 for i in range(rank)]
    batch, channels = x.shape[0], x.shape[1] // math.prod(block)
    parts = x.reshape(batch, channels, *block, *counts)
    large = x.new_zeros(batch, channels, *sizes)
    for offset in itertools.product(*(range(size) for size in block)):
        part, place = parts, large
        for i in range(rank):
            start = gaps[i] * offset[i]
            part = part.select(2, offset[i])
            place = place[(slice(None),) * (2 + i) + (slice(start, start + steps[i] * counts[i], steps[i]),)]
        place += part
    for i in range(rank):
        large = large.narrow(2 + i, pads[i], image[i])
    return large


OPERATORS = (Operator("Col2Im", 18, col2im),)
