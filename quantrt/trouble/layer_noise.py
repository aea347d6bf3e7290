# SPDX-License-Identifier: Apache-2.0
"""How much noise in what a layer computes comes of rounding its input.

    noise_ratio = mean over groups g of   sum_c noise[c] |W[:, c]|^2  /  sum_c power[c] |W[:, c]|^2

Roundings of channels are taken as independent of each other and of the values. A dense layer mixes channels,
so a wide one drowns a narrow one only as far as the weights let it; of a depthwise convolution, a sum or a
pool every channel is a group, and what is lost of a narrow one is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.quantize.quantized_model import Use
from quantrt.trouble.observe import Channels

__all__ = ["LayerNoise", "layer_noises"]

Array = np.ndarray[Any, Any]


CHANNELWISE = ("Add", "AveragePool", "GlobalAveragePool", "ReduceMean")

LOST_RATIO = 0.1
"""Noise from which on a group of channels counts as lost: 10 dB."""


@dataclass(frozen=True)
class LayerNoise:
    """The noise that rounding one input makes in the output of one layer.

    Attributes:
        node: the layer.
        index: of the input.
        noise_ratio: over the power of what the layer computes.
        groups: of channels, which do not mix.
        lost: groups of which more than LOST_RATIO is noise.
        peaks: greatest magnitude of every channel, float64 [C].
    """

    node: ir.Node
    index: int
    noise_ratio: float
    groups: int
    lost: int
    peaks: Array

    @property
    def is_depthwise(self) -> bool:
        """Whether it is a convolution of every channel on its own."""
        return is_operator(self.node, "Conv") and self.groups > 1 and self.groups == len(self.peaks)

    @property
    def peak_ratio(self) -> float:
        """The widest channel over the middle one; 1 with less than two channels, or where that is zero."""
        middle = float(np.median(self.peaks)) if len(self.peaks) > 1 else 0.0
        return float(self.peaks.max()) / middle if middle > 0 else 1.0


def layer_noises(graph: ir.Model, observed: Mapping[Use, Channels]) -> tuple[LayerNoise, ...]:
    """Of every observed input, in topological order."""
    found = []
    for node in graph.graph:
        for index in range(len(node.inputs)):
            channels = observed.get((node.name or "", index))
            if channels is not None:
                found.append(_layer_noise(node, index, channels))
    return tuple(found)


def _layer_noise(node: ir.Node, index: int, channels: Channels) -> LayerNoise:
    gains = _gains(node, index, len(channels.power))
    parts = (channels.noise.reshape(len(gains), -1), channels.power.reshape(len(gains), -1))
    noise, power = ((part * gains).sum(axis=1) for part in parts)
    is_used = power > 0
    ratios = np.minimum(noise[is_used] / power[is_used], 1.0)
    mean = float(ratios.mean()) if ratios.size else 0.0
    return LayerNoise(node, index, mean, len(gains), int((ratios > LOST_RATIO).sum()), channels.peak)


def _gains(node: ir.Node, index: int, channels: int) -> Array:
    """Power that an input channel gains on its way through the layer, float64 [groups, C / groups].

    Ones where the layer has no constant weight, or one of another form; sums and pools keep channels apart.
    """
    if is_operator(node, *CHANNELWISE):
        return np.ones((channels, 1))
    weight = constant_of(node.inputs[1]) if index == 0 and len(node.inputs) > 1 else None
    groups = int_attribute(node, "group", 1) if is_operator(node, "Conv") else 1
    gains = np.ones(channels)
    if weight is not None and is_operator(node, "Conv"):
        parts = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
        gains = np.square(parts, dtype=np.float64).sum(axis=(1, 3)).reshape(-1)
    elif weight is not None and weight.ndim == 2 and is_operator(node, "MatMul", "Gemm"):
        is_transposed = node.op_type == "Gemm" and int_attribute(node, "transB", 0)
        gains = np.square(weight, dtype=np.float64).sum(axis=0 if is_transposed else 1)
    if len(gains) != channels or channels % groups:
        return np.ones((1, channels))
    return gains.reshape(groups, -1)
