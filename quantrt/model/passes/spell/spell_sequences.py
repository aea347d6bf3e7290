# SPDX-License-Identifier: Apache-2.0
"""A tensor that is split into a sequence and read at constant places becomes a Split.

    s = SplitToSequence(x, sizes),  y = SequenceAt(s, 1)    ->    _, y, _ = Split(x, sizes)

torch writes `chunk`, `split` and `unbind` as the former where its own optimizer is off. Everything behind the
canonical form knows parts of tensors, and nothing of it sequences.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, constant_of, int_attribute, is_operator
from quantrt.ir.sources import SOURCES_KEY, sources_of

__all__ = ["spell_sequences"]


def spell_sequences(graph: ir.Model) -> int:
    """Replace each of the main graph whose parts and their sizes are known; how many."""
    count = 0
    for node in list(graph.graph):
        if not is_operator(node, "SplitToSequence") or node.outputs[0].is_graph_output():
            continue
        sizes = _sizes(node)
        readers = None if sizes is None else _readers(node.outputs[0], len(sizes))
        if sizes is not None and readers:
            _replace(graph, node, sizes, readers)
            count += 1
    return count


def _sizes(node: ir.Node) -> list[int] | None:
    """Of the parts; None where they are not known, or an axis goes with them."""
    x = node.inputs[0]
    split = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if split is None:  # parts of one, without their axis by an attribute
        return None
    if split.ndim == 1:
        return [int(size) for size in split]
    axis, step = int_attribute(node, "axis", 0), int(split)
    length = None if x is None or x.shape is None else x.shape[axis]
    if not isinstance(length, int) or step < 1:
        return None
    return [min(step, length - first) for first in range(0, length, step)]


def _readers(sequence: ir.Value, parts: int) -> dict[int, ir.Node] | None:
    """Who reads each part; None where something else is read, or one part twice."""
    found: dict[int, ir.Node] = {}
    for use in sequence.uses():
        reader = use.node
        place = constant_of(reader.inputs[1]) if is_operator(reader, "SequenceAt") else None
        if place is None or not -parts <= int(place) < parts or reader.graph is not sequence.graph:
            return None
        if found.setdefault(int(place) % parts, reader) is not reader:
            return None
    return found


def _replace(graph: ir.Model, node: ir.Node, sizes: list[int], readers: dict[int, ir.Node]) -> None:
    table = add_constant(graph, f"{node.name}.sizes", np.array(sizes, np.int64))
    split = ir.Node(
        "",
        "Split",
        [node.inputs[0], table],
        [ir.AttrInt64("axis", int_attribute(node, "axis", 0))],
        num_outputs=len(sizes),
        name=node.name,
        metadata_props=dict(node.metadata_props),
    )
    sources = (source for made in (node, *readers.values()) for source in sources_of(made))
    split.metadata_props[SOURCES_KEY] = "\n".join(dict.fromkeys(sources))
    graph.graph.insert_before(node, split)
    for part, reader in readers.items():
        old, new = reader.outputs[0], split.outputs[part]
        new.type, new.shape = old.type, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        graph.graph.remove(reader, safe=True)
        name, old.name = old.name, None
        new.name = name
    graph.graph.remove(node, safe=True)
