# SPDX-License-Identifier: Apache-2.0
"""The image encoder of EfficientViT-SAM-L0 in plain torch, batch norms folded into its convolutions.

Zhang et al., "EfficientViT-SAM: Accelerated Segment Anything Model Without Accuracy Loss", 2024; Cai et al.,
"EfficientViT: Lightweight Multi-Scale Attention for High-Resolution Dense Prediction", 2023: five stages, the
first three of whole convolutions, the last with ReLU linear attention over two scales; a neck adds the last
three at an eighth of the image's size.
"""

__all__ = ["SAM", "SAM_SMALL", "SamSizes", "empty_sam_encoder", "sam_inputs"]

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import interpolate, pad, relu

Tensor = torch.Tensor

EPSILON = 1e-5
"""Added to the divisor of linear attention, as timm does; torch's exporter takes 1e-15 for nothing."""

DOWN_RATIO = 4
"""How much wider the block is that halves the size than those behind it."""

STRIDE = 8
"""Of the neck."""


@dataclass(frozen=True)
class SamSizes:
    """Sizes of the encoder.

    Attributes:
        widths, depths: channels of every stage, and its blocks.
        expansions: of the blocks of every stage.
        head: channels of a head of attention.
        neck, neck_depth: channels of the neck, and its blocks.
    """

    widths: tuple[int, ...] = (32, 64, 128, 256, 512)
    depths: tuple[int, ...] = (1, 1, 1, 4, 4)
    expansions: tuple[int, ...] = (1, 4, 4, 4, 6)
    head: int = 32
    neck: int = 256
    neck_depth: int = 4


SAM = SamSizes()
SAM_SMALL = SamSizes(widths=(8, 8, 16, 16, 32), depths=(1, 1, 1, 1, 1), head=8, neck=16, neck_depth=1)


def empty_sam_encoder(sizes: SamSizes) -> nn.Module:
    """The encoder without memory for its weights."""
    with torch.device("meta"):
        return _Encoder(sizes).eval()


def sam_inputs(batch: int, height: int, width: int) -> dict[str, Tensor]:
    """Seeded inputs by name."""
    return {"image": torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(1))}


class _Encoder(nn.Module):
    def __init__(self, sizes: SamSizes) -> None:
        super().__init__()
        widths, (first, *depths), (_, *expansions) = sizes.widths, sizes.depths, sizes.expansions
        self.stem = _activated(_convolution(3, widths[0], 3, stride=2))
        self.stages = nn.ModuleList([nn.Sequential(*(_Added(_whole(widths[0])) for _ in range(first)))])
        for number, (depth, expansion) in enumerate(zip(depths, expansions, strict=True), start=1):
            before, width = widths[number - 1 : number + 1]
            is_fused, has_attention = number < 3, number == len(depths)
            block = _fused if is_fused else _inverted
            layers: list[nn.Module] = [block(before, width, expansion * DOWN_RATIO, stride=2)]
            for _ in range(depth):
                layers += [_Added(_LinearAttention(width, sizes.head))] if has_attention else []
                layers.append(_Added(block(width, width, expansion)))
            self.stages.append(nn.Sequential(*layers))
        self.sides = nn.ModuleList(_convolution(width, sizes.neck, 1) for width in widths[2:])
        self.neck = nn.Sequential(
            *(_Added(_fused(sizes.neck, sizes.neck, 1)) for _ in range(sizes.neck_depth)),
            _convolution(sizes.neck, sizes.neck, 1),
        )

    def forward(self, image: Tensor) -> Tensor:
        """The embedding of an image, [batch, neck, height / 8, width / 8]."""
        size = (image.shape[2] // STRIDE, image.shape[3] // STRIDE)
        x, made = self.stem(image), []
        for stage in self.stages:
            x = stage(x)
            made.append(x)
        total = self.sides[0](made[2])
        for side, x in zip(self.sides[1:], made[3:], strict=True):
            total = total + interpolate(side(x), size, mode="bicubic", align_corners=False)
        embedding: Tensor = self.neck(total)
        return embedding


def _convolution(inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups)


def _activated(layer: nn.Module) -> nn.Sequential:
    return nn.Sequential(layer, nn.GELU(approximate="tanh"))


def _whole(width: int) -> nn.Sequential:
    return nn.Sequential(_activated(_convolution(width, width, 3)), _convolution(width, width, 3))


def _fused(inputs: int, outputs: int, expansion: int, *, stride: int = 1) -> nn.Sequential:
    middle = inputs * expansion
    return nn.Sequential(
        _activated(_convolution(inputs, middle, 3, stride=stride)), _convolution(middle, outputs, 1)
    )


def _inverted(inputs: int, outputs: int, expansion: int, *, stride: int = 1) -> nn.Sequential:
    middle = inputs * expansion
    return nn.Sequential(
        _activated(_convolution(inputs, middle, 1)),
        _activated(_convolution(middle, middle, 3, stride=stride, groups=middle)),
        _convolution(middle, outputs, 1),
    )


class _Added(nn.Module):
    """A layer, and what it reads."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return x + y


class _LinearAttention(nn.Module):
    """Over pixels at two scales: q, k and v as they are, and gathered by 5x5 convolutions."""

    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.head, heads = head, width // head
        self.qkv = _convolution(width, 3 * width, 1)
        self.gather = nn.Sequential(
            _convolution(3 * width, 3 * width, 5, groups=3 * width),
            _convolution(3 * width, 3 * width, 1, groups=3 * heads),
        )
        self.proj = _convolution(2 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        qkv = self.qkv(x)
        both = torch.cat([qkv, self.gather(qkv)], 1)
        pixels = both.reshape(batch, -1, 3 * self.head, height * width).transpose(-1, -2)
        q, k, v = pixels.chunk(3, -1)
        q, k, v = relu(q), relu(k), pad(v, (0, 1), value=1.0)
        y = q @ (k.transpose(-1, -2) @ v)
        y = y[..., :-1] / (y[..., -1:] + EPSILON)
        made: Tensor = self.proj(y.transpose(-1, -2).reshape(batch, -1, height, width))
        return made
