# SPDX-License-Identifier: Apache-2.0
"""Nodes that hand their input on unchanged are removed."""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import absorb, constant_of, int_attribute, is_operator, only_consumer
from quantrt.ir.same_values import add_names
from quantrt.ir.sources import add_sources, sources_of

__all__ = ["remove_identities"]


def remove_identities(graph: ir.Model) -> int:
    """Remove Identity, Dropout at inference, Cast to the same type, Concat or Sum of one; how many.

    A Pad by nothing is one too: windows of attention come with it where the map is a multiple of them.

    A graph output keeps its name: where a removed node made it, the node before takes the name over. The
    node stays where that is impossible, the value being a graph input, a constant or an output already.
    """
    count = 0
    for node in list(graph.graph):
        if _is_identity(node) and _remove(node):
            count += 1
    return count


def _is_identity(node: ir.Node) -> bool:
    if not node.inputs or node.inputs[0] is None or any(value.uses() for value in node.outputs[1:]):
        return False
    if any(value.is_graph_output() for value in node.outputs[1:]):
        return False
    if is_operator(node, "Identity"):
        return True
    if is_operator(node, "Concat", "Sum"):
        return len(node.inputs) == 1
    if is_operator(node, "Pad"):
        return _pads_nothing(node)
    if is_operator(node, "Cast"):
        return node.inputs[0].dtype is not None and node.inputs[0].dtype == int_attribute(node, "to", 0)
    return is_operator(node, "Dropout") and _is_inference(node)


def _pads_nothing(node: ir.Node) -> bool:
    """Whether all of a Pad's sizes are 0, in whichever place its opset has them."""
    pads = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if pads is None:
        attribute = node.attributes.get("pads")
        return attribute is not None and not attribute.is_ref() and not any(attribute.as_ints())
    return not pads.any()


def _is_inference(node: ir.Node) -> bool:
    """Whether a Dropout does nothing: no training_mode (opset 12 on), or a constant false one."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    mode = constant_of(node.inputs[2])
    return mode is not None and mode.size == 1 and not mode.any()


def _remove(node: ir.Node) -> bool:
    before, after = node.inputs[0], node.outputs[0]
    if before is None:
        return False
    producer = before.producer()
    if not after.is_graph_output():
        add_names(before, after)
        after.replace_all_uses_with(before)
        if producer is not None and producer.graph is node.graph:
            add_sources(producer, sources_of(node))
        if node.graph is not None:
            node.graph.remove(node, safe=True)
        return True
    if producer is None or producer.graph is not node.graph or len(producer.outputs) != 1:
        return False
    if before.is_graph_output() or only_consumer(before) is not node:
        return False
    add_names(after, before)
    absorb(producer, node)
    return True
