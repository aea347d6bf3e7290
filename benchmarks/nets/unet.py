# SPDX-License-Identifier: Apache-2.0
"""A U-Net in plain torch: pairs of convolutions, maximum pools, transposed convolutions, joined skips.

Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015; padded, so that
the map of classes is as large as the image.
"""

__all__ = ["unet"]

import torch
from torch import nn

WIDTHS = (64, 128, 256, 512, 1024)
CLASSES = 2


def unet() -> nn.Module:
    """Images f32 [batch, 3, height, width], sizes that 16 divides -> f32 [batch, CLASSES, height, width]."""
    return _UNet()


def _double(inputs: int, outputs: int) -> nn.Module:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        conv = nn.Conv2d(channels, outputs, 3, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        pairs = list(zip(WIDTHS[:-1], WIDTHS[1:], strict=True))
        self.first = _double(3, WIDTHS[0])
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(_double(narrow, wide) for narrow, wide in pairs)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(wide, narrow, 2, stride=2) for narrow, wide in reversed(pairs)
        )
        self.merge = nn.ModuleList(_double(wide, narrow) for narrow, wide in reversed(pairs))
        self.last = nn.Conv2d(WIDTHS[0], CLASSES, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        kept = [self.first(images)]
        for down in self.down:
            kept.append(down(self.pool(kept[-1])))
        x = kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        classes: torch.Tensor = self.last(x)
        return classes
