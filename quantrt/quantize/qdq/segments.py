# SPDX-License-Identifier: Apache-2.0
"""A switched graph cut where few tensors pass: a switch late in the model needs no run from its start.

    float part:     tensors at one cut -> tensors at the next
    switched part:  tensors at a cut, flags -> outputs of the model, with a few of the switches

Everything before the first switch that is on is the float model, whichever that is: it is run once.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import constant_of, is_operator
from quantrt.model.cuts import Cut, list_cuts
from quantrt.quantize.qdq.switches import FLAGS

__all__ = ["find_cuts", "with_switches"]

MOST_TENSORS = 4
"""That a cut may pass through; more would take memory and save little."""


def find_cuts(graph: ir.Graph, count: int) -> tuple[Cut, ...]:
    """The start, and up to `count` - 1 cuts at about equal distances, each where the fewest tensors pass.

    Args:
        graph: float nodes in topological order.
    """
    options = [cut for cut in list_cuts(graph) if len(cut.tensors) <= MOST_TENSORS]
    cuts = [Cut(0, ())]
    step = len(list(graph)) / count
    for number in range(1, count):
        near = [cut for cut in options if abs(cut.position - number * step) <= step / 2]
        near = [cut for cut in near if cut.position > cuts[-1].position]
        if near:
            cuts.append(min(near, key=lambda cut: (len(cut.tensors), abs(cut.position - number * step))))
    return tuple(cuts)


def with_switches(graph: ir.Model, kept: Collection[int]) -> ir.Model:
    """A switched graph in which only some switches are left; the others are off for good."""
    part = clone(graph)
    for node in list(part.graph):
        index = _switch_index(node)
        if index is not None and index not in kept:
            node.outputs[0].replace_all_uses_with(_floating(node), replace_graph_outputs=False)
    return part


def _switch_index(node: ir.Node) -> int | None:
    """The place in the flags of a Where that is a switch before a node; None for every other node."""
    if not is_operator(node, "Where") or node.outputs[0].is_graph_output():
        return None
    condition = node.inputs[0]
    gather = condition.producer() if condition is not None else None
    if gather is None or not is_operator(gather, "Gather") or gather.inputs[0] is None:
        return None
    position = constant_of(gather.inputs[1])
    return int(position) if gather.inputs[0].name == FLAGS and position is not None else None


def _floating(node: ir.Node) -> ir.Value:
    value = node.inputs[2]
    assert value is not None  # a switch is always made with both
    return value
