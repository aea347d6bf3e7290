# SPDX-License-Identifier: Apache-2.0
"""A Transpose that puts back what one before it turned is removed: Transpose(Transpose(x)) -> x.

Where ONNX Runtime's optimizer wrote channels last for one operator, it turned the image there and back again.
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.ir.same_values import add_names
from quantrt.ir.sources import add_sources, sources_of

__all__ = ["cancel_transposes"]


def cancel_transposes(graph: ir.Model) -> int:
    """Let readers of such a Transpose in the main graph read x itself; how many."""
    count = 0
    for node in list(graph.graph):
        source = _source(node)
        if source is None or node.outputs[0].is_graph_output():
            continue
        add_names(source, node.outputs[0])
        for reader in [*node.outputs[0].consumers()]:
            add_sources(reader, sources_of(node))
        node.outputs[0].replace_all_uses_with(source)
        graph.graph.remove(node, safe=True)
        count += 1
    return count


def _source(node: ir.Node) -> ir.Value | None:
    """What a Transpose and the one before it leave as it was."""
    before = node.inputs[0].producer() if is_operator(node, "Transpose") and node.inputs[0] else None
    if before is None or not is_operator(before, "Transpose"):
        return None
    first, second = _order(before), _order(node)
    if first is None or second is None or len(first) != len(second):
        return None
    return before.inputs[0] if [first[axis] for axis in second] == list(range(len(first))) else None


def _order(node: ir.Node) -> list[int] | None:
    order = node.attributes.get("perm")
    return None if order is None or order.is_ref() else [int(axis) for axis in order.as_ints()]
