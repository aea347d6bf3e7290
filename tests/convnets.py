# SPDX-License-Identifier: Apache-2.0
"""Well-known convolutional networks layer by layer, an eighth as wide: ResNet-18 and -50, MobileNetV2.

Batch norms are folded, as they are when a model has been loaded.
"""

from __future__ import annotations

import numpy as np

from quantrt.model.model import Model
from tests.nets import net, weights

__all__ = ["NETWORKS"]

WIDTH = 8


class _Layers:
    """A graph that grows from its input to its output."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.value, self.channels = "x", 3

    def conv(self, N: int, kernel: int, *, stride: int = 1, groups: int = 1) -> str:
        """A convolution of what is there, padded to its size."""
        number, half = len(self.shapes), kernel // 2
        self.shapes[f"w{number}"] = (N, self.channels // groups, kernel, kernel)
        attributes = f"group={groups}, strides=[{stride},{stride}], pads=[{half},{half},{half},{half}]"
        self.channels = N
        return self.add(f"Conv<{attributes}>({self.value}, w{number})")

    def add(self, call: str) -> str:
        """One node more, whose result is what is there now."""
        self.value = f"v{len(self.lines)}"
        self.lines.append(f"{self.value} = {call}")
        return self.value

    def relu(self, *, is_6: bool = False) -> str:
        return self.add(f"Clip({self.value}, zero, six)" if is_6 else f"Relu({self.value})")

    def model(self) -> Model:
        """With its classifier."""
        self.add(f"GlobalAveragePool({self.value})")
        self.add(f"Flatten({self.value})")
        self.shapes["w_last"] = (10, self.channels)
        body = "\n  ".join([*self.lines, f"y = Gemm<transB=1>({self.value}, w_last)"])
        text = f"net (float[N,3,64,64] x) => (float[N,10] y) {{\n  {body}\n}}"
        numbers = {"zero": np.array(0.0, np.float32), "six": np.array(6.0, np.float32)}
        is_clipped = any("Clip" in line for line in self.lines)
        return net(text, {**weights(self.shapes), **(numbers if is_clipped else {})})


def _resnet(blocks: tuple[int, ...], *, is_deep: bool) -> Model:
    """He et al., "Deep residual learning for image recognition", 2015, table 1."""
    layers = _Layers()
    layers.conv(WIDTH, 7, stride=2)
    layers.relu()
    layers.add(f"MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>({layers.value})")
    for stage, count in enumerate(blocks):
        for number in range(count):
            _residual(layers, WIDTH << stage, 2 if stage and not number else 1, is_deep=is_deep)
    return layers.model()


def _residual(layers: _Layers, width: int, stride: int, *, is_deep: bool) -> None:
    before, channels, N = layers.value, layers.channels, width * (4 if is_deep else 1)
    if is_deep:
        layers.conv(width, 1)
        layers.relu()
    layers.conv(width, 3, stride=stride)
    layers.relu()
    main = layers.conv(N, 1 if is_deep else 3)
    layers.value, layers.channels = before, channels
    other = layers.conv(N, 1, stride=stride) if (stride, channels) != (1, N) else before
    layers.channels = N
    layers.add(f"Add({main}, {other})")
    layers.relu()


def _mobilenet_v2() -> Model:
    """Sandler et al., "MobileNetV2", 2018, table 2."""
    layers = _Layers()
    layers.conv(WIDTH // 2, 3, stride=2)
    layers.relu(is_6=True)
    rows = (
        (1, 2, 1, 1),
        (6, 3, 2, 2),
        (6, 4, 3, 2),
        (6, 8, 4, 2),
        (6, 12, 3, 1),
        (6, 20, 3, 2),
        (6, 40, 1, 1),
    )
    for factor, N, count, stride in rows:
        for number in range(count):
            _inverted(layers, factor, N, 1 if number else stride)
    layers.conv(160, 1)
    layers.relu(is_6=True)
    return layers.model()


def _inverted(layers: _Layers, factor: int, N: int, stride: int) -> None:
    before, channels = layers.value, layers.channels
    wide = factor * channels
    if factor > 1:
        layers.conv(wide, 1)
        layers.relu(is_6=True)
    layers.conv(wide, 3, stride=stride, groups=wide)
    layers.relu(is_6=True)
    layers.conv(N, 1)
    if (stride, channels) == (1, N):
        layers.add(f"Add({layers.value}, {before})")


NETWORKS = {
    "resnet18": lambda: _resnet((2, 2, 2, 2), is_deep=False),
    "resnet50": lambda: _resnet((3, 4, 6, 3), is_deep=True),
    "mobilenetv2": _mobilenet_v2,
}
