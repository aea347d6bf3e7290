# SPDX-License-Identifier: Apache-2.0
"""Masks that differ from query to query choose among scores and a number, where they added it.

    Softmax(s + Where(is_seen, 0, low))  ->  Softmax(Where(is_seen, s, low))

and likewise with 0 and low exchanged; low is finite and so far down that no score shows beside it, such as
float32's lowest number. As something to add it is -inf in float16, which has a query that sees no key end in
zeros; in the model such a query has the same score everywhere, and attends to all keys alike. Sliding windows
over padded texts have queries of that kind. A mask that is the same for all queries is left: a sample without
any token is nobody's.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator, number_of, only_consumer, take_place
from quantrt.ir.sources import add_sources, sources_of
from quantrt.model.passes.remove_unused import remove_unused

__all__ = ["choose_scores"]

_LOW = -1e30
"""From here down half of the distance between two numbers of float32 is above 3e22: scores do not show."""


def choose_scores(graph: ir.Model) -> int:
    """Rewrite the main graph; how many sums went."""
    count = 0
    for node in list(graph.graph):
        pairs = (node.inputs, node.inputs[::-1]) if _adds_to_scores(node) else ()
        chosen = next((found for mask, scores in pairs if (found := _chosen(mask, scores))), None)
        if chosen is not None:
            choice = ir.Node("", "Where", chosen, name=node.name)
            add_sources(choice, sources_of(node))
            take_place(graph, node, [choice], choice.outputs[0])
            count += 1
    if count:
        remove_unused(graph)
    return count


def _adds_to_scores(node: ir.Node) -> bool:
    """Whether a node is a sum that a Softmax alone reads."""
    return is_operator(node, "Add") and is_operator(only_consumer(node.outputs[0]), "Softmax")


def _chosen(mask: ir.Value | None, scores: ir.Value | None) -> tuple[ir.Value | None, ...] | None:
    """What a Where of scores reads where a mask is added to them; None where it is no such mask."""
    maker = None if mask is None else mask.producer()
    if mask is None or scores is None or scores.dtype != ir.DataType.FLOAT or not _differs_by_query(mask):
        return None
    if maker is None or not is_operator(maker, "Where") or constant_of(scores) is not None:
        return None
    is_seen, *sides = maker.inputs
    numbers = [number_of(value) for value in sides]
    for place in (0, 1):
        low = numbers[1 - place]
        if numbers[place] == 0.0 and low is not None and -math.inf < low <= _LOW:
            sides[place] = scores
            return is_seen, *sides
    return None


def _differs_by_query(mask: ir.Value) -> bool:
    """Whether a mask [..., queries, keys] has more than one row, as far as is known."""
    return mask.shape is not None and len(mask.shape) > 1 and mask.shape[-2] != 1
