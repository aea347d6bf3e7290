# SPDX-License-Identifier: Apache-2.0
"""Pixels that are repeated and the convolution behind them, which may read them where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from quantrt.gpu import GpuFacts
from quantrt.regions.region import Conv, Resize, ResizedConv
from quantrt.tactics.cuda.convolutions.resized_conv import why_not
from quantrt.tactics.cuda.fold.pairs import Pair, only_reader
from quantrt.tactics.cuda.program.assemble import Item
from quantrt.tactics.cuda.program.frame import Frame
from quantrt.tactics.cuda.tactic import TensorFacts

__all__ = ["find_resized"]

PATTERN = "resize in front of a convolution"
_RESIZED = ", resized"


def find_resized(frame: Frame, facts: Mapping[str, TensorFacts], gpu: GpuFacts) -> list[Pair]:
    """Every resize and the convolution behind it that a kernel computes as one on the GPU.

    Args:
        facts: of every buffer.
    """
    found = []
    for item in frame.items:
        reader = _convolution_behind(item, frame)
        if reader is None or facts[item.inputs[0]].dtype != facts[item.outputs[0]].dtype:
            continue
        fused = _as_one(item, reader)
        assert fused.lowered is not None
        pitches = [frame.places[x].channels if x in frame.places else 0 for x in fused.outputs]
        workload = fused.lowered.workload([facts[buffer] for buffer in fused.inputs], pitches)
        if why_not(workload, gpu) is None:
            found.append(Pair(item, reader, fused, workload, PATTERN))
    return found


def _convolution_behind(item: Item, frame: Frame) -> Item | None:
    """The convolution that alone reads what a resize stores, as its x alone."""
    if item.lowered is None or not isinstance(item.lowered.formula, Resize):
        return None
    reader = only_reader(item, frame)
    if reader is None or reader.lowered is None or not isinstance(reader.lowered.formula, Conv):
        return None
    is_x = reader.inputs[0] == item.outputs[0] and reader.inputs.count(item.outputs[0]) == 1
    return reader if is_x else None


def _as_one(item: Item, reader: Item) -> Item:
    resize, convolution = item.lowered, reader.lowered
    assert resize is not None and isinstance(resize.formula, Resize)
    assert convolution is not None and isinstance(convolution.formula, Conv)
    name = reader.region + _RESIZED
    nodes = (*resize.region.nodes, *convolution.region.nodes)
    values = (resize.region.inputs[0], *convolution.region.inputs[1:])
    lowered = replace(
        convolution,
        region=replace(convolution.region, name=name, nodes=nodes, inputs=values),
        formula=ResizedConv(resize.formula, convolution.formula),
        inputs=(*resize.inputs, *convolution.inputs[1:]),
    )
    return replace(reader, region=name, inputs=(*item.inputs, *reader.inputs[1:]), lowered=lowered)
