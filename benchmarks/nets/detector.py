# SPDX-License-Identifier: Apache-2.0
"""A one-stage detector of images in plain torch, with the layers and widths of YOLOv8-s.

Backbone of cross-stage-partial blocks, a pyramid of maximum pools behind it, features passed up and down
again, and one decoupled head for each of three strides (Ultralytics YOLOv8, 2023, for the structure). The
outputs are the heads' maps, without decoding and suppression.
"""

__all__ = ["HEADS", "detector"]

import torch
from torch import nn

WIDTHS = (32, 64, 128, 256, 512)
DEPTHS = (1, 2, 2, 1)
"""Channels of the stem and of the four stages; residual pairs in each stage."""

POOL = 5
BOX_CHANNELS, CLASSES = 64, 80
"""Of the two branches of a head: sixteen bins for each of four sides, and classes."""

HEADS = ("stride8", "stride16", "stride32")
"""Names of the outputs, f32 [batch, BOX_CHANNELS + CLASSES, height / stride, width / stride]."""


def detector() -> nn.Module:
    """The network for images f32 [batch, 3, height, width], sizes that 32 divides; initial weights."""
    return _Detector()


def _conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs, eps=1e-3), nn.SiLU())


class _Pair(nn.Module):
    """Two 3x3 convolutions, with a shortcut in the backbone."""

    def __init__(self, channels: int, *, has_shortcut: bool) -> None:
        super().__init__()
        self.convs = nn.Sequential(_conv(channels, channels, 3), _conv(channels, channels, 3))
        self.has_shortcut = has_shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.convs(x)
        return x + y if self.has_shortcut else y


class _Stage(nn.Module):
    """Half of the channels goes through pairs in turn; every one's result is kept and all are mixed."""

    def __init__(self, inputs: int, outputs: int, depth: int, *, has_shortcut: bool) -> None:
        super().__init__()
        self.first = _conv(inputs, outputs)
        half = outputs // 2
        self.pairs = nn.ModuleList(_Pair(half, has_shortcut=has_shortcut) for _ in range(depth))
        self.last = _conv((2 + depth) * half, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = list(self.first(x).chunk(2, 1))
        for pair in self.pairs:
            kept.append(pair(kept[-1]))
        mixed: torch.Tensor = self.last(torch.cat(kept, 1))
        return mixed


class _PoolPyramid(nn.Module):
    """Maxima over windows of POOL, once, twice and three times, side by side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _conv(channels, channels // 2)
        self.pool = nn.MaxPool2d(POOL, 1, POOL // 2)
        self.last = _conv(2 * channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = [self.first(x)]
        for _ in range(3):
            kept.append(self.pool(kept[-1]))
        mixed: torch.Tensor = self.last(torch.cat(kept, 1))
        return mixed


class _Head(nn.Module):
    """Boxes and classes, each from two 3x3 convolutions and a 1x1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(_conv(channels, width, 3), _conv(width, width, 3), nn.Conv2d(width, outputs, 1))
            for width, outputs in ((BOX_CHANNELS, BOX_CHANNELS), (WIDTHS[2], CLASSES))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class _Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        stem, *stages = WIDTHS
        self.stem = _conv(3, stem, 3, 2)
        self.stages = nn.ModuleList(
            nn.Sequential(_conv(before, width, 3, 2), _Stage(width, width, depth, has_shortcut=True))
            for before, width, depth in zip(WIDTHS[:-1], stages, DEPTHS, strict=True)
        )
        small, middle, large = WIDTHS[2:]
        self.pyramid = _PoolPyramid(large)
        self.up = nn.Upsample(scale_factor=2.0, mode="nearest")
        self.to_middle = _Stage(large + middle, middle, 1, has_shortcut=False)
        self.to_small = _Stage(middle + small, small, 1, has_shortcut=False)
        self.down_small = _conv(small, small, 3, 2)
        self.from_small = _Stage(small + middle, middle, 1, has_shortcut=False)
        self.down_middle = _conv(middle, middle, 3, 2)
        self.from_middle = _Stage(middle + large, large, 1, has_shortcut=False)
        self.heads = nn.ModuleList(_Head(width) for width in (small, middle, large))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        maps = [self.stem(images)]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        small, middle, large = maps[2], maps[3], self.pyramid(maps[4])
        middle = self.to_middle(torch.cat([self.up(large), middle], 1))
        small = self.to_small(torch.cat([self.up(middle), small], 1))
        middle = self.from_small(torch.cat([self.down_small(small), middle], 1))
        large = self.from_middle(torch.cat([self.down_middle(middle), large], 1))
        return tuple(head(x) for head, x in zip(self.heads, (small, middle, large), strict=True))
