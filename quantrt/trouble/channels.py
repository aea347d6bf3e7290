# SPDX-License-Identifier: Apache-2.0
"""Layers whose 8-bit input loses what they compute from: outlier channels, wide ranges of channels.

Codes of an activation have one step for all of its channels. A few channels that are hundreds of times as
wide as the others, as transformers have in their residual streams (Dettmers et al. 2022, "LLM.int8()"), leave
those others a code or two; so do the ranges of depthwise convolutions (Nagel et al. 2019, section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.histogram import bin_edges
from quantrt.calibrate.stats import TensorStats
from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.quantize.patterns.behind_conv import before_activation
from quantrt.trouble.finding import TROUBLE, Finding
from quantrt.trouble.layer_noise import LayerNoise, layer_noises
from quantrt.trouble.scene import Scene

__all__ = ["NOISE_LIMIT", "find_lost_inputs", "find_lost_weights", "find_wide_ranges"]

NOISE_LIMIT = 2e-2
"""Of what a layer computes, by power: 17 dB. Dense layers of networks that int8 leaves whole have up to
2e-3, depthwise ones a hundredth; what was planted to break them 2e-1 and more."""

OUTLIER_RATIO = 20.0
"""Of a channel's peak to the middle one's, from which on it counts as an outlier: the others share six codes
on either side of zero."""

ZEROED_LIMIT = 0.8
"""Of the values that are not zero. Trained networks that int8 leaves whole have up to 0.7."""

NEAR_ZERO = ("Softmax", "Sigmoid")
"""Most of what they make is near zero, and means it."""

FEW_RATIO = 0.1
"""Outliers are at most this part of the channels; more of them are a wide spread."""

HARM_LIMIT = 1e-3
"""Noise in the outputs, by power: 30 dB. What makes less alone is no trouble, however little its layer keeps:
a detector's head with dead channels had noise of 55 % in a layer and of 2e-8 in the outputs."""

NAMED = 4
"""Channels that are named."""


def find_lost_inputs(scene: Scene) -> Iterator[Finding]:
    """From the channels of layers' inputs: a finding for every tensor that loses what is read of it."""
    lost: dict[str, list[LayerNoise]] = {}
    for one in layer_noises(scene.model.graph, scene.inputs):
        value = one.node.inputs[one.index]
        if one.noise_ratio > NOISE_LIMIT and value is not None:
            lost.setdefault(value.name or "", []).append(one)
    for name, layers in lost.items():
        names = tuple(one.node.name or "" for one in layers)
        beside = {near for one in layers for near in _made_beside(scene, one.node)}
        harm = math.inf if scene.alone is None else scene.alone.noise_ratio({*names, *beside})
        if not harm < HARM_LIMIT:  # a NaN is not
            yield _lost_input(name, layers, harm)


def _made_beside(scene: Scene, node: ir.Node) -> Iterator[str]:
    """8-bit convolutions without which a sum would be no 8-bit one."""
    for value in node.inputs if is_operator(node, "Add") else ():
        source = before_activation(value)
        maker = source.producer() if source is not None else None
        if maker is not None and is_operator(maker, "Conv") and maker.name in scene.int8_nodes:
            yield maker.name or ""


def _lost_input(value: str, layers: Sequence[LayerNoise], harm: float) -> Finding:
    worst = max(layers, key=lambda one: one.noise_ratio)
    names = tuple(one.node.name or "" for one in layers)
    noise = f"noise of {worst.noise_ratio:.1%} in what is computed"
    if math.isfinite(harm):
        noise += f", {harm:.1e} in the outputs"
    outliers = _outliers(worst)
    wide = f"{worst.peak_ratio:.0f} times as wide as the middle one"
    if worst.is_depthwise:
        kind = "depthwise ranges"
        figure = f"{worst.lost} of {worst.groups} channels are mostly noise, the widest is {wide}; {noise}"
        effect = (
            "every channel is convolved alone: what one step for all leaves of a narrow one is all it has"
        )
    elif outliers and worst.groups == 1:
        kind = "outlier channels"
        named = ", ".join(map(str, outliers[:NAMED])) + (", ..." if len(outliers) > NAMED else "")
        figure = f"channels {named} of {len(worst.peaks)}, up to {wide}; {noise}"
        effect = "one step for all channels is as wide as most of them: they are rounded away"
    else:
        kind = "channel ranges"
        some = f"{worst.lost} of {worst.groups} channels are mostly noise, " if worst.groups > 1 else ""
        figure = f"{some}the widest channel is {wide}; {noise}"
        effect = "the wide channels set the step, and the narrow ones are rounded away"
    return Finding(kind, TROUBLE, names, (value,), figure, effect, _advice(names))


def _outliers(one: LayerNoise) -> tuple[int, ...]:
    """Channels far wider than the middle one; none where they are many."""
    middle = float(np.median(one.peaks))
    found = np.flatnonzero(one.peaks > OUTLIER_RATIO * middle) if middle > 0 else np.empty(0, np.int64)
    return tuple(found.tolist()) if 0 < len(found) <= max(FEW_RATIO * len(one.peaks), 1) else ()


def find_wide_ranges(scene: Scene) -> Iterator[Finding]:
    """From histograms alone: tensors of which most values become zero."""
    stats, quantized = scene.stats, scene.quantized
    if scene.inputs or stats is None or quantized is None or scene.target.activation.dtype.is_float:
        return
    makers = {value.name: node for node in scene.nodes for value in node.outputs}
    readers: dict[str, list[str]] = {}
    for (node, _), value in scene.placement.uses.items():
        if not is_operator(makers.get(value), *NEAR_ZERO):
            readers.setdefault(value, []).append(node)
    for value, nodes in readers.items():
        seen = stats.tensors[value]
        ratio = _zeroed_ratio(seen, float(quantized.activations[value].scale))
        if ratio > ZEROED_LIMIT:
            names = tuple(dict.fromkeys(nodes))
            figure = f"values from {seen.lo:.3g} to {seen.hi:.3g}: {ratio:.0%} of them are rounded to zero"
            effect = "a few large values set the step, and the many small ones are rounded away"
            yield Finding("wide range", TROUBLE, names, (value,), figure, effect, _advice(names))


def _zeroed_ratio(stats: TensorStats, step: float) -> float:
    """The part of the values that are not zero, and that are less than half a step."""
    keys = np.flatnonzero(stats.counts)
    near, far = bin_edges(keys)
    counts, middles = stats.counts[keys], np.abs(near + far) / 2
    is_some = np.minimum(np.abs(near), np.abs(far)) > 0
    total = int(counts[is_some].sum())
    return float(counts[is_some & (middles < step / 2)].sum() / total) if total else 0.0


def find_lost_weights(scene: Scene) -> Iterator[Finding]:
    """Depthwise weights with one scale for all channels, the narrow ones of which are lost."""
    weights = {} if scene.quantized is None else scene.quantized.weights
    lost: list[tuple[str, float, float]] = []
    for node in scene.nodes:
        weight = weights.get((node.name or "", 1))
        if weight is None or weight.qparams.axis is not None or not _is_depthwise(node):
            continue
        floats = constant_of(node.inputs[1])
        if floats is not None:
            rows = floats.reshape(len(floats), -1).astype(np.float64)
            rounded = weight.dequantize().reshape(len(floats), -1)
            power = np.square(rows).sum(axis=1)
            noise = np.square(rounded - rows).sum(axis=1)[power > 0] / power[power > 0]
            peaks = np.abs(rows).max(axis=1)
            if noise.size and float(np.mean(np.minimum(noise, 1.0))) > NOISE_LIMIT:
                lost.append((node.name or "", float(peaks.max() / np.median(peaks)), float(np.mean(noise))))
    if lost:
        names = tuple(name for name, _, _ in lost)
        name, ratio, mean = max(lost, key=lambda row: row[2])
        figure = (
            f"'{name}': its widest channel is {ratio:.0f} times the middle one; noise {mean:.1%} of a channel"
        )
        effect = "with one scale for a whole depthwise weight the narrow channels become zeros"
        advice = "leave out --no-per-channel; a model below opset 13 has to be exported anew"
        yield Finding("depthwise weights", TROUBLE, names, (), figure, effect, advice)


def _is_depthwise(node: ir.Node) -> bool:
    weight = constant_of(node.inputs[1]) if is_operator(node, "Conv") else None
    return weight is not None and weight.shape[1] == 1 and int_attribute(node, "group", 1) > 1


def _advice(names: Sequence[str]) -> str:
    return (
        f"`quantrt build` with --max-drop keeps it float where that is needed; --exclude "
        f"'{names[0]}' does so at once; 100 calibration samples or more let channels be equalized"
    )
