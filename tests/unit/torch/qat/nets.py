# SPDX-License-Identifier: Apache-2.0
"""Small networks with everything that preparing has to see: norms, dropout, in-place sums, attention."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.side = None
        if stride > 1:
            self.side = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x):
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        y += x if self.side is None else self.side(x)
        return self.relu(y)


class ResNet(nn.Module):
    """[N, 3, 16, 16] -> [N, 5]."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 1, 1)
        self.norm = nn.BatchNorm2d(8)
        self.block1 = Block(8, 8, 1)
        self.block2 = Block(8, 16, 2)
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.block2(self.block1(functional.relu(self.norm(self.conv(x)))))
        x = functional.adaptive_avg_pool2d(self.pool(x), 1).flatten(1)
        return self.head(self.dropout(x))


class Transformer(nn.Module):
    """[N, 6] token ids -> [N, 5]: an embedding, one layer with attention, a head for the first token."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(50, width)
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, 5)

    def forward(self, ids):
        x = self.embed(ids)
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, tokens, width))
        x = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return self.head(x[:, 0])


def resnet():
    """A network whose norms have seen something."""
    torch.manual_seed(0)
    net = ResNet()
    with torch.no_grad():
        for _ in range(3):
            net(images(16, seed=1))
    return net.eval()


def transformer():
    torch.manual_seed(0)
    return Transformer().eval()


def images(count, seed):
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def ids(count, seed):
    return torch.randint(0, 50, (count, 6), generator=torch.Generator().manual_seed(seed))
