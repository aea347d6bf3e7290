# SPDX-License-Identifier: Apache-2.0
"""Values that float16 may be too narrow for: they are stored as float32 in an engine of halves.

The numerator of softmax-free attention is one, a sum over all tokens that is divided only afterwards. What
overflows becomes infinite, and NaN soon after; kernels add in float32 anyway: storing is what loses it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

__all__ = ["HEADROOM_RATIO", "told_wide", "wide_values"]

FLOAT16_MAX = 65504.0

HEADROOM_RATIO = 8.0
"""Other inputs may reach so many times what samples reach."""


def wide_values(extremes: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """Buffers that come within a factor of HEADROOM_RATIO of float16's largest number.

    What never exceeds zero is no such value: it is a mask, of which only the distance from 0 counts.

    Args:
        extremes: by buffer of a program in float32, its least and its largest number on samples.
    """
    limit = FLOAT16_MAX / HEADROOM_RATIO
    found = {name: pair.tolist() for name, pair in extremes.items()}
    return frozenset(name for name, (least, most) in found.items() if most > 0 and max(-least, most) > limit)


def told_wide(names: frozenset[str]) -> str:
    """That values are wider than fp16."""
    listed = sorted(names)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return f"stored in FP32, for fp16 may be too narrow: {', '.join(listed[:3])}{more}"
