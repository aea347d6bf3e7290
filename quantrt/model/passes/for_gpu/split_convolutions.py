# SPDX-License-Identifier: Apache-2.0
"""Channels of a convolution that are split behind it become convolutions of their own.

Split(act(Conv(x, w)))  ->  act(Conv(x, w_0)), act(Conv(x, w_1)), ...

Kernels read images whose channels are all neighbours, so a part of more channels would be copied by each of
its readers; x, which is read once more for each part, is mostly in the cache.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir

from quantrt.ir.activation import activation_of
from quantrt.ir.edit import add_constant, constant_of, free_name, int_attribute, is_operator, only_consumer
from quantrt.ir.sources import SOURCES_KEY, add_sources, sources_of
from quantrt.model.passes.for_gpu.constant_product import remove_nodes

__all__ = ["split_convolutions"]

CHANNELS = 16
"""Parts have a multiple of as many: fewer would leave most of a tensor core's tile empty."""


def split_convolutions(graph: ir.Model) -> int:
    """Rewrite those of the main graph of whose parts a convolution reads one; how many."""
    count = 0
    for split in list(graph.graph):
        if is_operator(split, "Split"):
            count += _rewrite(graph, split)
    return count


def _rewrite(graph: ir.Model, split: ir.Node) -> bool:
    nodes = _nodes_before(split)
    sizes = _sizes(split, nodes[0]) if nodes else None
    is_convolved = any(is_operator(use.node, "Conv") for value in split.outputs for use in value.uses())
    if sizes is None or not is_convolved:
        return False
    begins = [0, *itertools.accumulate(sizes)]
    for number, result in enumerate(split.outputs):
        part = slice(begins[number], begins[number + 1])
        name, value = result.name, _make_part(graph, split, nodes, number, part)
        result.replace_all_uses_with(value, replace_graph_outputs=True)
        result.name, value.name = None, name
    remove_nodes(graph, (*nodes, split))
    return True


def _nodes_before(split: ir.Node) -> tuple[ir.Node, ...]:
    """A convolution and the activations whose result is split and read nowhere else; none where it is not."""
    value = split.inputs[0]
    if value is None or only_consumer(value) is not split:
        return ()
    nodes: tuple[ir.Node, ...] = ()
    while (found := activation_of(value.producer())) is not None:
        nodes = (*found[1], *nodes)
        value = found[0]
    conv = value.producer()
    if conv is None or not _is_plain(conv):
        return ()
    nodes = (conv, *nodes)
    inside = [x for node in nodes for x in node.outputs]
    readers = {id(use.node) for x in inside for use in x.uses()}
    is_closed = readers <= {id(node) for node in (*nodes, split)}
    return nodes if is_closed and not any(x.is_graph_output() for x in inside) else ()


def _is_plain(conv: ir.Node) -> bool:
    """Whether a node is a convolution of all channels with constants."""
    if not is_operator(conv, "Conv") or int_attribute(conv, "group", 1) != 1:
        return False
    return all(constant_of(value) is not None for value in conv.inputs[1:] if value is not None)


def _sizes(split: ir.Node, conv: ir.Node) -> list[int] | None:
    """Channels of every part; None where it is not channels that are split, or in parts of other sizes."""
    weight = constant_of(conv.inputs[1])
    if weight is None or int_attribute(split, "axis", 0) % weight.ndim != 1:
        return None
    count, total = len(split.outputs), weight.shape[0]
    if len(split.inputs) > 1 and split.inputs[1] is not None:
        given = constant_of(split.inputs[1])
        sizes = [] if given is None else [int(size) for size in given]
    else:
        most = -(-total // count)
        sizes = [most] * (count - 1) + [total - most * (count - 1)]
    is_whole = len(sizes) == count and sum(sizes) == total
    return sizes if is_whole and all(size > 0 and size % CHANNELS == 0 for size in sizes) else None


def _make_part(
    graph: ir.Model, split: ir.Node, nodes: tuple[ir.Node, ...], number: int, part: slice
) -> ir.Value:
    """Write the nodes of one part before the Split; what they make."""
    made: dict[ir.Value | None, ir.Value] = {}
    for node in nodes:
        inputs = [made.get(value, value) for value in node.inputs]
        if node is nodes[0]:
            inputs[1:] = [_part_of(graph, value, number, part) for value in inputs[1:]]
        new = ir.Node("", node.op_type, inputs, name=free_name(graph, f"{node.name}.{number}"))
        new.attributes.update(node.attributes)
        new.metadata_props[SOURCES_KEY] = "\n".join(sources_of(node))
        old, value = node.outputs[0], new.outputs[0]
        value.name, value.type = free_name(graph, f"{old.name}.{number}"), old.type
        if old.shape is not None:
            dims = list(old.shape.dims)
            value.shape = ir.Shape([dims[0], part.stop - part.start, *dims[2:]])
        made[old] = value
        graph.graph.insert_before(split, new)
        last = new
    add_sources(last, sources_of(split))
    return last.outputs[0]


def _part_of(graph: ir.Model, value: ir.Value | None, number: int, part: slice) -> ir.Value | None:
    array = constant_of(value)
    if value is None or array is None:
        return None
    return add_constant(graph, f"{value.name}.{number}", np.ascontiguousarray(array[part]))
