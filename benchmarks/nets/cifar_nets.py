# SPDX-License-Identifier: Apache-2.0
"""Trained CIFAR-10 networks as torch modules, with the weights of their ONNX files."""

__all__ = ["NETS", "ResNet20", "ViTTiny", "load_cifar_net"]

import itertools
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional

from benchmarks.nets.cifar_efficientvit import EfficientViTB0

CLASSES = 10


class _Block(nn.Module):
    """Two convolutions and a shortcut without parameters (He et al. 2015, arXiv 1512.03385, option A)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1)
        self.stride = stride
        self.added = (width - channels) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv2(functional.relu(self.conv1(x)))
        if self.stride > 1:
            x = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.added, self.added))
        return functional.relu(y + x)


class ResNet20(nn.Module):
    """As in akamaster/pytorch_resnet_cifar10, batch normalization folded; [N, 3, 32, 32] -> [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1)
        self.layer1 = nn.Sequential(*(_Block(16, 16, 1) for _ in range(3)))
        self.layer2 = nn.Sequential(_Block(16, 32, 2), _Block(32, 32, 1), _Block(32, 32, 1))
        self.layer3 = nn.Sequential(_Block(32, 64, 2), _Block(64, 64, 1), _Block(64, 64, 1))
        self.linear = nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of normalized pictures."""
        x = self.layer3(self.layer2(self.layer1(functional.relu(self.conv1(x)))))
        return self.linear(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(query, key, value)
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, width))


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = _Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential()
        self.mlp.fc1 = nn.Linear(width, 4 * width)
        self.mlp.act = nn.GELU()
        self.mlp.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViTTiny(nn.Module):
    """timm's vit_tiny_patch16_224 for pictures of 32, patches of 4, 9 layers; [N, 3, 32, 32] -> [N, 10]."""

    def __init__(self, width: int = 192, heads: int = 3, layers: int = 9) -> None:
        super().__init__()
        self.patch_embed = nn.Sequential()
        self.patch_embed.proj = nn.Conv2d(3, width, 4, 4)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 65, width))
        self.blocks = nn.Sequential(*(_Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of normalized pictures."""
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


NETS = {
    "cifar10_resnet20": ResNet20,
    "cifar10_vit_tiny_d9": ViTTiny,
    "cifar10_efficientvit_b0": EfficientViTB0,
}
"""By the names of their files, without `.onnx`."""


def load_cifar_net(path: Path) -> nn.Module:
    """The network of one of the files in NETS, in evaluation mode."""
    graph = onnx.load(path).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type in ("Conv", "MatMul"):  # some constants were exported under names of the exporter's
            weight = stored.get(node.input[1])
            if weight is not None:
                stored[f"{_owner(node.name)}.weight"] = weight.T if node.op_type == "MatMul" else weight
            if len(node.input) > 2:
                stored[f"{_owner(node.name)}.bias"] = stored[node.input[2]]
    net = NETS[path.stem]()
    state = {name: torch.from_numpy(np.array(stored[name])) for name in net.state_dict()}
    net.load_state_dict(state)
    return net.eval()


def _owner(node: str) -> str:
    """The module that a node is of: "/blocks/blocks.0/proj/MatMul" is of "blocks.0.proj"."""
    *path, _ = node.strip("/").split("/")
    return ".".join(
        part
        for part, after in itertools.zip_longest(path, path[1:], fillvalue="")
        if not after.startswith(f"{part}.")
    )
