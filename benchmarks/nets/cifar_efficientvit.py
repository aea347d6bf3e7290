# SPDX-License-Identifier: Apache-2.0
"""EfficientViT-B0 for ten classes as a torch module, batch normalization folded.

Cai et al. 2022, arXiv 2205.14756. Modules have the names that timm's efficientvit_b0 gives them.
"""

__all__ = ["EfficientViTB0"]

from collections import OrderedDict
from typing import Any

import torch
from torch import nn
from torch.nn import functional

STEM_WIDTH = 8
STAGES = ((16, 1, False), (32, 1, False), (64, 2, True), (128, 2, True))
"""Of each: channels, blocks behind the one that halves the resolution, and whether these have attention."""
HEAD_WIDTHS = (1024, 1280)
EXPANSION = 4
"""Channels inside a block over those around it."""
HEAD_DIM = 16
LEAST_SUM = 1e-5
"""Added to what attention weights sum up to."""


def _conv(
    inputs: int, outputs: int, kernel: int = 1, *, stride: int = 1, groups: int = 1, bias: bool = True
) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=bias)
    return nn.Sequential(OrderedDict(conv=conv))


def _active(inputs: int, outputs: int, kernel: int = 1, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = _conv(inputs, outputs, kernel, stride=stride, groups=groups)
    layer.act = nn.Hardswish()
    return layer


def _separable(width: int) -> nn.Sequential:
    depthwise = _active(width, width, 3, groups=width)
    return nn.Sequential(OrderedDict(depth_conv=depthwise, point_conv=_conv(width, width)))


def _inverted(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    inner = EXPANSION * inputs
    return nn.Sequential(
        OrderedDict(
            inverted_conv=_active(inputs, inner),
            depth_conv=_active(inner, inner, 3, stride=stride, groups=inner),
            point_conv=_conv(inner, outputs),
        )
    )


class _Block(nn.Module):
    """`main`, added to what it reads or in its place."""

    def __init__(self, main: nn.Module, *, is_residual: bool = True) -> None:
        super().__init__()
        self.main = main
        self.is_residual = is_residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.main(x)
        return y + x if self.is_residual else y


class _LinearAttention(nn.Module):
    """ReLU attention, linear in the number of pixels, over queries, keys and values of two scales.

    out = relu(q) @ (relu(k)^T @ v) / sum(relu(q) @ relu(k)^T), the sum by a column of ones behind v.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 3 * width
        self.qkv = _conv(width, inner, bias=False)
        coarser = nn.Sequential(
            nn.Conv2d(inner, inner, 5, padding=2, groups=inner, bias=False),
            nn.Conv2d(inner, inner, 1, groups=inner // HEAD_DIM, bias=False),
        )
        self.aggreg = nn.Sequential(coarser)
        self.proj = _conv(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, _, height, width = x.shape
        qkv = self.qkv(x)
        qkv = torch.cat([qkv, self.aggreg[0](qkv)], 1)
        qkv = qkv.reshape(batch, -1, 3 * HEAD_DIM, height * width).transpose(-1, -2)
        query, key, value = qkv.chunk(3, -1)
        query, key = functional.relu(query), functional.relu(key)
        y = query @ (key.transpose(-1, -2) @ functional.pad(value, (0, 1), value=1.0))
        y = y[..., :-1] / (y[..., -1:] + LEAST_SUM)
        return self.proj(y.transpose(-1, -2).reshape(batch, -1, height, width))


class _AttentionBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.context_module = _Block(_LinearAttention(width))
        self.local_module = _Block(_inverted(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.local_module(self.context_module(x))


class _Stage(nn.Module):
    def __init__(self, inputs: int, width: int, depth: int, *, has_attention: bool) -> None:
        super().__init__()
        first = _Block(_inverted(inputs, width, stride=2), is_residual=False)
        rest = (
            _AttentionBlock(width) if has_attention else _Block(_inverted(width, width)) for _ in range(depth)
        )
        self.blocks = nn.Sequential(first, *rest)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)


class EfficientViTB0(nn.Module):
    """[N, 3, 64, 64] -> [N, 10]."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        stem = _Block(_separable(STEM_WIDTH))
        self.stem = nn.Sequential(OrderedDict(in_conv=_active(3, STEM_WIDTH, 3, stride=2), res0=stem))
        self.stages = nn.Sequential()
        width = STEM_WIDTH
        for outputs, depth, has_attention in STAGES:
            self.stages.append(_Stage(width, outputs, depth, has_attention=has_attention))
            width = outputs
        wide, wider = HEAD_WIDTHS
        self.head: Any = nn.Module()
        self.head.in_conv = _active(width, wide)
        self.head.classifier = nn.Sequential(
            nn.Linear(wide, wider, bias=False),
            nn.LayerNorm(wider),
            nn.Hardswish(),
            nn.Dropout(0.0),
            nn.Linear(wider, classes),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of normalized pictures, scaled up to 64x64."""
        x = self.head.in_conv(self.stages(self.stem(x)))
        return self.head.classifier(functional.adaptive_avg_pool2d(x, 1).flatten(1))
