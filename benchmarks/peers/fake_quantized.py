# SPDX-License-Identifier: Apache-2.0
"""Convolutions and linear layers of a torch module with torch's own fake-quantize functions in front.

int8, symmetric, the largest magnitude at 127: inputs with one scale, weights with one for each output
channel. NVIDIA's pytorch-quantization exports its modules through the same functions, so that weights are
stored as floats, in front of both nodes.
"""

__all__ = ["fake_quantized"]

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional

QMAX = 127


class _FakeQuantized(nn.Module):
    """One layer.

    Args:
        largest: magnitude among its inputs.
    """

    steps: torch.Tensor
    zeros: torch.Tensor

    def __init__(self, layer: nn.Conv2d | nn.Linear, largest: float) -> None:
        super().__init__()
        self.layer = layer
        self.step = largest / QMAX
        weight = layer.weight.detach()
        self.register_buffer("steps", weight.abs().flatten(1).amax(1).clamp(min=1e-12) / QMAX)
        self.register_buffer("zeros", torch.zeros(len(weight), dtype=torch.int32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.fake_quantize_per_tensor_affine(x, self.step, 0, -QMAX - 1, QMAX)
        weight = torch.fake_quantize_per_channel_affine(
            self.layer.weight, self.steps, self.zeros, 0, -QMAX - 1, QMAX
        )
        layer = self.layer
        if isinstance(layer, nn.Linear):
            return functional.linear(x, weight, layer.bias)
        return functional.conv2d(
            x, weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups
        )


def fake_quantized(net: nn.Module, batches: Iterable[torch.Tensor]) -> nn.Module:
    """The module with its layers replaced, by the largest magnitudes that these batches show."""
    layers = {
        name: module for name, module in net.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)
    }
    largest = dict.fromkeys(layers, 0.0)
    hooks = [
        layer.register_forward_pre_hook(
            lambda module, args, name=name: largest.update(
                {name: max(largest[name], float(args[0].abs().max()))}
            )
        )
        for name, layer in layers.items()
    ]
    with torch.no_grad():
        for batch in batches:
            net(batch)
    for hook in hooks:
        hook.remove()
    for name, layer in layers.items():
        net.set_submodule(name, _FakeQuantized(layer, largest[name]))
    return net.eval()
