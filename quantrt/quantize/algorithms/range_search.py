# SPDX-License-Identifier: Apache-2.0
"""Ranges of activations searched by the error of the model's outputs, one tensor at a time.

    range[t] <- argmin over r of |model(ranges with r * range[t]) - float model|^2

What a tensor loses by clipping or by a coarser step says little of what the outputs lose: errors of tensors
add up, cancel, or meet a layer that ignores them. PTQ4ViT searches a layer's scales by the distance of its
outputs, weighted by gradients (arXiv 2111.12293, section 3.3); here the model's outputs themselves are
compared, which needs no gradients. Scales are inputs of one fake-quantized model, so that trying one costs a
run and no new session. Zero points stay where the codes of a range's ends stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.taps import is_float
from quantrt.ir.edit import is_operator
from quantrt.ir.session import float_session
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.scales.qparams import QParams
from quantrt.reference.metrics import mean_noise_ratio
from quantrt.reference.row_sets import row_sets

__all__ = ["search_ranges"]

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]

NARROWER, WIDER = (0.9, 0.8, 0.6), (1.15,)
"""Parts of a range that are tried in its place: one way as long as the outputs gain, otherwise the other."""
LEAST_GAIN = 0.99
"""Noise over the noise before, above which a range stays: less is chance, on so few samples."""
BATCHES = 32
"""Of those of calibration that every trial is run on."""
PREFIX = "quantrt.scale_of."


def search_ranges(
    quantized: QuantizedModel,
    batches: Sequence[Inputs],
    wanted: Sequence[Sequence[Array]],
) -> dict[str, QParams]:
    """The grids of activations that bring a model's outputs nearest to those wanted.

    Tensors that share a grid keep sharing it. Integer biases, whose scales are those of activations, stay
    floats while others are tried: their rounding does not matter beside that of activations.

    Args:
        wanted: the float model's floating-point outputs, for each batch.
    """
    grids = _grids(quantized)
    if not grids or not batches:
        return dict(quantized.activations)
    batches, wanted = batches[:BATCHES], wanted[:BATCHES]
    session = float_session(_with_scale_inputs(quantized, grids))
    scales = {name: quantized.activations[members[0]].scale for name, members in grids.items()}

    names = [value.name or "" for value in quantized.graph.graph.outputs if is_float(value)]
    sets = row_sets(quantized.graph.graph)

    def named(outputs: Sequence[Array]) -> dict[str, Array]:
        return dict(zip(names, outputs, strict=True))

    def noise(changed: Mapping[str, Array]) -> float:
        feed = {PREFIX + name: scale for name, scale in {**scales, **changed}.items()}
        made = ([x for x in session.run(None, {**batch, **feed}) if x.dtype.kind == "f"] for batch in batches)
        return mean_noise_ratio(map(named, wanted), map(named, made), sets)

    def noise_with(name: str, scale: Array) -> float:
        return noise({name: scale})

    best = start = noise({})
    for name in grids:
        scale, least = _best_scale(partial(noise_with, name), scales[name], best)
        if least < LEAST_GAIN * best:
            scales[name], best = scale, least
    log.debug("ranges by the outputs: noise ratio %.2e, was %.2e", best, start)
    changed = dict(quantized.activations)
    for name, members in grids.items():
        changed |= {member: replace(changed[member], scale=scales[name]) for member in members}
    return changed


def _best_scale(noise: Callable[[Array], float], scale: Array, start: float) -> tuple[Array, float]:
    """The scale with the least noise among those tried, and that noise.

    Args:
        noise: of the outputs, by the scale.
        start: that of the scale as it is.
    """
    best, least = scale, start
    for way in (NARROWER, WIDER):
        for ratio in way:
            tried = np.asarray(scale * np.float32(ratio), np.float32)
            found = noise(tried)
            if not found < least:  # NaN is not
                break
            best, least = tried, found
        if best is not scale:
            break
    return best, least


def _grids(quantized: QuantizedModel) -> dict[str, list[str]]:
    """Quantized values by the grid they share, in the order of the graph; each under its first name."""
    order = [value.name or "" for value in quantized.graph.graph.inputs]
    order += [value.name or "" for node in quantized.graph.graph for value in node.outputs]
    group_of = {name: group for group in quantized.placement.groups for name in group}
    grids: dict[str, list[str]] = {}
    seen: set[str] = set()
    for name in order:
        grid = quantized.activations.get(name)
        if grid is None or name in seen or grid.axis is not None or grid.dtype.is_float:
            continue
        members = sorted(member for member in group_of.get(name, {name}) if member in quantized.activations)
        seen.update(members)
        grids[name] = members
    return grids


def _with_scale_inputs(quantized: QuantizedModel, grids: Mapping[str, Sequence[str]]) -> ir.Model:
    """The fake-quantized graph with the scale of each grid as an input."""
    # Activations that clip stay before the rounding: on codes, their bounds would move with the scales.
    target = replace(quantized.target, quantizes_outputs=False)
    graph = write(replace(quantized, biases={}, target=target))
    inputs: dict[str, ir.Value] = {}
    for name, members in grids.items():
        value = ir.Value(name=PREFIX + name, shape=ir.Shape([]), type=ir.TensorType(ir.DataType.FLOAT))
        graph.graph.inputs.append(value)
        inputs |= {f"{member}_quantize": value for member in members}
    for node in list(graph.graph):
        if is_operator(node, "QuantizeLinear") and node.name in inputs:
            _take_scale(node, inputs[node.name])
    return graph


def _take_scale(quantize: ir.Node, scale: ir.Value) -> None:
    """Let a QuantizeLinear, and the DequantizeLinear of its codes, read a scale."""
    quantize.replace_input_with(1, scale)
    for node, index in list(quantize.outputs[0].uses()):
        if is_operator(node, "DequantizeLinear") and index == 0:
            node.replace_input_with(1, scale)
