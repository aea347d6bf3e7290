# SPDX-License-Identifier: Apache-2.0
"""Give every node of a file a name of its own."""

from __future__ import annotations

import onnx

from quantrt.ir.sources import SOURCES_KEY
from quantrt.model.file.check import all_nodes, subgraphs_of

__all__ = ["name_nodes"]


def name_nodes(graph: onnx.GraphProto) -> int:
    """Name unnamed nodes and rename duplicates, subgraphs included; how many were.

    An unnamed node is called after its operator and its position in its graph, "Conv_3"; a number is
    added where that is taken. A renamed duplicate remembers the file's name as its source.
    """
    taken = {node.name for node in all_nodes(graph) if node.name}
    seen: set[str] = set()
    return _name(graph, taken, seen)


def _name(graph: onnx.GraphProto, taken: set[str], seen: set[str]) -> int:
    count = 0
    for index, node in enumerate(graph.node):
        if not node.name:
            node.name = _unused(f"{node.op_type}_{index}", taken)
            count += 1
        elif node.name in seen:
            node.metadata_props.add(key=SOURCES_KEY, value=node.name.replace("\n", " "))
            node.name = _unused(f"{node.name}_{index}", taken)
            count += 1
        seen.add(node.name)
        count += sum(_name(subgraph, taken, seen) for subgraph in subgraphs_of(node))
    return count


def _unused(name: str, taken: set[str]) -> str:
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate
