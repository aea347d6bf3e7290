# SPDX-License-Identifier: Apache-2.0
"""What the kernel of a convolution sees: windows of its input, as a view, by the attributes of its node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.lib.stride_tricks import sliding_window_view

__all__ = ["Windows", "cut_windows", "windows_of"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Windows:
    """How windows lie on images of `rank` axes.

    Attributes:
        strides, dilations: one number for each axis.
        pads: in front of every axis of the images, then behind every one.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]


def windows_of(node: ir.Node, sizes: Sequence[int], kernel: Sequence[int]) -> Windows:
    """Those of a convolution.

    Args:
        sizes: of the images that it reads, without their channels.
    """
    rank = len(sizes)
    strides, dilations = _ints(node, "strides", 1, rank), _ints(node, "dilations", 1, rank)
    attribute = node.attributes.get("auto_pad")
    mode = "NOTSET" if attribute is None else attribute.as_string()
    if mode == "NOTSET":
        return Windows(strides, dilations, _ints(node, "pads", 0, 2 * rank))
    if mode == "VALID":
        return Windows(strides, dilations, (0,) * (2 * rank))
    totals = [
        max((-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
        for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    less = [total // 2 for total in totals]
    more = [total - part for total, part in zip(totals, less, strict=True)]
    return Windows(strides, dilations, (*less, *more) if mode == "SAME_UPPER" else (*more, *less))


def cut_windows(x: Array, kernel: Sequence[int], windows: Windows) -> Array:
    """The windows of images [N, C, images...], padded with zeros: a view [N, C, places..., taps...]."""
    rank, pads = x.ndim - 2, windows.pads
    around = [(0, 0), (0, 0), *((pads[axis], pads[axis + rank]) for axis in range(rank))]
    extents = tuple((size - 1) * step + 1 for size, step in zip(kernel, windows.dilations, strict=True))
    every = sliding_window_view(np.pad(x, around), extents, axis=tuple(range(2, 2 + rank)))
    steps = (*windows.strides, *windows.dilations)
    return every[(slice(None), slice(None), *(slice(None, None, step) for step in steps))]


def _ints(node: ir.Node, name: str, default: int, count: int) -> tuple[int, ...]:
    attribute = node.attributes.get(name)
    return (default,) * count if attribute is None else tuple(attribute.as_ints())
