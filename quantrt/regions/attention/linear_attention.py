# SPDX-License-Identifier: Apache-2.0
"""ReLU linear attention as exporters spell it (Cai et al., "EfficientViT", 2023, section 3.1).

    both = MatMul(Relu(q), MatMul(Transpose(Relu(k)), Pad(v, one column of ones)))
    y = Div(both[..., :-1], Add(both[..., -1:], epsilon))

The column of ones makes the divisor, the sum of Relu(k) over all tokens times Relu(q), in the same products.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator, number_of, order_of
from quantrt.regions.anchors.anchor import is_float
from quantrt.regions.clusters import Clusters
from quantrt.regions.facts.facts import Facts
from quantrt.regions.region import LinearAttention, Mismatch, Region

__all__ = ["find_linear_attention"]

RANK = 4


@dataclass
class _Match:
    """What is recognised while nodes are followed from the division up.

    Attributes:
        nodes: positions.
        edges: of q, k and v: the position that reads each, and at which input.
    """

    nodes: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    epsilon: float = 0.0


def find_linear_attention(
    facts: Facts, clusters: Clusters, claimed: Collection[int]
) -> tuple[list[Region], list[Mismatch]]:
    """Regions of linear attention outside `claimed`; their groups in `clusters` are merged."""
    regions: list[Region] = []
    mismatches: list[Mismatch] = []
    for position, node in enumerate(facts.nodes):
        match = _recognised(position, facts) if is_operator(node, "Div") else None
        if match is None:
            continue
        reason = _why_not(match, position, facts, claimed)
        if reason is None and not clusters.merge(match.nodes):
            reason = "its parts cannot run as one"
        if reason is None:
            regions.append(_region(match, position, facts))
        else:
            mismatches.append(Mismatch("linear attention", reason, node.name or ""))
    return regions, mismatches


def _recognised(position: int, facts: Facts) -> _Match | None:
    """The attention that ends in a division; None where there is none."""
    match = _Match([position])
    top, bottom = facts.nodes[position].inputs
    numerator = _above(top, "Slice", facts, match)
    added = _above(bottom, "Add", facts, match)
    if numerator is None or added is None:
        return None
    epsilons = [number for value in added.inputs if (number := number_of(value)) is not None]
    sums = [value for value in added.inputs if constant_of(value) is None]
    divisor = _above(sums[0], "Slice", facts, match) if len(sums) == len(epsilons) == 1 else None
    if divisor is None or not _cuts(numerator, 0, -1) or not _cuts(divisor, -1, None):
        return None
    if numerator.inputs[0] is not divisor.inputs[0]:
        return None
    match.epsilon = epsilons[0]
    return match if _multiplied(numerator.inputs[0], facts, match) else None


def _multiplied(both: ir.Value | None, facts: Facts, match: _Match) -> bool:
    """Whether both products are what they should be; notes their nodes and edges."""
    second = _above(both, "MatMul", facts, match)
    queries = None if second is None else _above(second.inputs[0], "Relu", facts, match)
    first = None if second is None else _above(second.inputs[1], "MatMul", facts, match)
    if queries is None or first is None:
        return False
    turned = _above(first.inputs[0], "Transpose", facts, match)
    padded = _above(first.inputs[1], "Pad", facts, match)
    if turned is None or padded is None or not _swaps(turned) or not _adds_ones(padded):
        return False
    keys = _above(turned.inputs[0], "Relu", facts, match)
    if keys is None:
        return False
    places = {id(facts.nodes[position]): position for position in match.nodes}
    match.edges = [(places[id(node)], 0) for node in (queries, keys, padded)]
    return True


def _above(value: ir.Value | None, op_type: str, facts: Facts, match: _Match) -> ir.Node | None:
    """The node of a type that makes a value, noted; None where another does."""
    maker = facts.maker_of(value)
    if maker is None or not is_operator(facts.nodes[maker], op_type):
        return None
    if maker not in match.nodes:
        match.nodes.append(maker)
    return facts.nodes[maker]


def _cuts(node: ir.Node, start: int, stop: int | None) -> bool:
    """Whether a Slice takes the last axis from `start` to `stop`, None being its end."""
    given = [constant_of(value) for value in node.inputs[1:]]
    if len(given) < 3 or any(array is None or array.size != 1 for array in given):
        return False
    begin, end, axis, *step = (int(array.reshape(-1)[0]) for array in given if array is not None)
    is_end = end >= np.iinfo(np.int32).max if stop is None else end == stop
    return begin == start and is_end and axis in (-1, RANK - 1) and step in ([], [1])


def _swaps(node: ir.Node) -> bool:
    """Whether a Transpose swaps the last two of four axes."""
    return order_of(node) == (0, 1, 3, 2)


def _adds_ones(node: ir.Node) -> bool:
    """Whether a Pad adds one column of ones behind the last of four axes."""
    mode = node.attributes.get("mode")
    if mode is not None and mode.as_string() != "constant":
        return False
    pads, number = (constant_of(value) for value in (*node.inputs[1:3], None)[:2])
    is_last = pads is not None and pads.tolist() == [0] * (2 * RANK - 1) + [1]
    has_axes = len(node.inputs) > 3 and node.inputs[3] is not None
    return is_last and not has_axes and number is not None and float(number.reshape(-1)[0]) == 1.0


def _why_not(match: _Match, position: int, facts: Facts, claimed: Collection[int]) -> str | None:
    values = [facts.nodes[reader].inputs[place] for reader, place in match.edges]
    shapes = [facts.sizes.shape(value) for value in values]
    made = facts.crossing(match.nodes)[1]
    if any(member in claimed for member in match.nodes):
        return "its parts are part of something else"
    if made != (facts.nodes[position].outputs[0].name,):
        return "parts of it are read elsewhere"
    if not all(is_float(value, facts) for value in values):
        return "q, k or v is not a float activation"
    if any(shape is None or len(shape) != RANK or not isinstance(shape[-1], int) for shape in shapes):
        return "q, k or v does not have four axes, the last of a known size"
    return None


def _region(match: _Match, position: int, facts: Facts) -> Region:
    edges = tuple((facts.nodes[reader].name or "", place) for reader, place in match.edges)
    values = (facts.nodes[reader].inputs[place] for reader, place in match.edges)
    members = sorted(match.nodes)
    return Region(
        facts.nodes[position].name or "",
        LinearAttention(edges, match.epsilon),
        tuple(facts.nodes[member].name or "" for member in members),
        tuple(dict.fromkeys(value.name or "" for value in values if value is not None)),
        facts.crossing(members)[1],
    )
