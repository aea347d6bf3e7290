# SPDX-License-Identifier: Apache-2.0
"""Softmax attention in its exported spellings, and ONNX's own operator.

    MatMul(q, k) [-> Mul, Div] [-> Add mask] -> Softmax [-> Where(IsNaN, 0, .)] -> MatMul(., v)

with Mul and Div by a number on q, on k, or on both, as torch spells its scale. The IsNaN guard that torch
writes for rows masked by -inf alone is dropped: a mask that allows nothing has no result to keep.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

import onnx_ir as ir

from quantrt.ir.edit import constant_of, float_attribute, int_attribute, is_operator
from quantrt.regions.anchor import FLOATS, is_float
from quantrt.regions.clusters import Clusters
from quantrt.regions.facts import Facts
from quantrt.regions.region import Attention, Mismatch, Region

__all__ = ["find_attention"]

_RANK = 4
OWN_ATTRIBUTES = {
    "is_causal",
    "kv_num_heads",
    "q_num_heads",
    "qk_matmul_output_mode",
    "scale",
    "softcap",
    "softmax_precision",
}
"""Of ONNX's Attention: those that are looked at, and those that mean nothing on four axes."""


class _NoMatch(Exception):
    """A recognition that failed at a node."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


@dataclass
class _Match:
    """What was recognised so far.

    Attributes:
        nodes: positions.
        edges: of q, k and v: the position that reads each, and at which input.
    """

    nodes: list[int]
    scale: float = 1.0
    mask: ir.Value | None = None
    is_transposed: bool = True
    edges: list[tuple[int, int]] = field(default_factory=list)


def find_attention(
    facts: Facts, clusters: Clusters, claimed: Collection[int]
) -> tuple[list[Region], list[Mismatch]]:
    """Regions of attention among the nodes outside `claimed`; their groups in `clusters` are merged."""
    regions: list[Region] = []
    mismatches: list[Mismatch] = []
    for position, node in enumerate(facts.nodes):
        try:
            match = _recognised(position, facts)
            if match is None:
                continue
            _check(match, facts, position)
            if any(member in claimed for member in match.nodes) or not clusters.merge(match.nodes):
                raise _NoMatch("its parts cannot run as one", position)
            regions.append(_region(match, facts, node.name or ""))
        except _NoMatch as failure:
            name = facts.nodes[failure.position].name or ""
            mismatches.append(Mismatch("attention", failure.reason, name))
    return regions, mismatches


def _recognised(position: int, facts: Facts) -> _Match | None:
    node = facts.nodes[position]
    if is_operator(node, "Attention"):
        return _own_operator(position, facts)
    if not is_operator(node, "Softmax"):
        return None
    second = _follow_down(position, facts)
    if second is None:
        return None
    match = _Match([position, *second])
    first = _follow_up(position, facts, match)
    match.nodes.append(first)
    q = _unscaled(first, 0, facts, match)
    k = _unscaled(first, 1, facts, match)
    match.edges = [q, k, (second[-1], 1)]
    return match


def _follow_down(position: int, facts: Facts) -> list[int] | None:
    """The nodes from behind the Softmax to the product with v; None where there is no such product."""
    found: list[int] = []
    value = facts.nodes[position].outputs[0]
    while True:
        guard = _guard(value, facts)
        reader = facts.only_reader(value)
        if guard is not None:
            found += guard
            value = facts.nodes[guard[-1]].outputs[0]
        elif reader is not None and _is_float_cast(facts.nodes[reader]):
            found.append(reader)
            value = facts.nodes[reader].outputs[0]
        elif reader is not None and is_operator(facts.nodes[reader], "MatMul"):
            is_first = facts.nodes[reader].inputs[0] is value
            return [*found, reader] if is_first else None
        else:
            return None


def _guard(value: ir.Value, facts: Facts) -> list[int] | None:
    """IsNaN and Where that put 0 in the place of NaN, where these two alone read the value."""
    readers = facts.readers_of(value)
    if len(readers) != 2 or value.name in facts.outputs:
        return None
    test, choice = (facts.nodes[reader] for reader in readers)
    if not is_operator(test, "IsNaN") or not is_operator(choice, "Where"):
        return None
    number = _number(choice.inputs[1])
    is_guard = choice.inputs[0] is test.outputs[0] and number == 0.0 and choice.inputs[2] is value
    return list(readers) if is_guard and facts.only_reader(test.outputs[0]) == readers[1] else None


def _follow_up(position: int, facts: Facts, match: _Match) -> int:
    """The product q k, found through the mask and the scale in front of the Softmax."""
    value = facts.nodes[position].inputs[0]
    while True:
        maker = facts.maker_of(value)
        if value is None or maker is None or facts.only_reader(value) is None:
            raise _NoMatch("the scores have other readers, or no product makes them", position)
        node = facts.nodes[maker]
        if is_operator(node, "MatMul"):
            return maker
        match.nodes.append(maker)
        factor = _factor(node)
        if _is_float_cast(node):
            value = node.inputs[0]
        elif factor is not None:
            match.scale *= factor[1]
            value = node.inputs[factor[0]]
        elif is_operator(node, "Add") and match.mask is None and match.scale == 1.0:
            side = _scores_side(node, facts)
            if side is None:
                raise _NoMatch("no product makes the scores that the mask is added to", maker)
            match.mask = node.inputs[1 - side]
            value = node.inputs[side]
        elif is_operator(node, "Where"):
            raise _NoMatch("the mask is not added to the scores: a Where chooses among them", maker)
        else:
            raise _NoMatch(f"a {node.op_type} stands between the scores and the Softmax", maker)


def _scores_side(add: ir.Node, facts: Facts) -> int | None:
    """Which input of the Add comes from a product, through numbers and casts alone."""
    for side in (0, 1):
        value = add.inputs[side]
        while True:
            maker = facts.maker_of(value)
            if maker is None:
                break
            node = facts.nodes[maker]
            if is_operator(node, "MatMul") and not any(constant_of(x) is not None for x in node.inputs):
                return side
            factor = _factor(node)
            if factor is None and not _is_float_cast(node):
                break
            value = node.inputs[factor[0] if factor is not None else 0]
    return None


def _unscaled(product: int, place: int, facts: Facts, match: _Match) -> tuple[int, int]:
    """The edge behind which q or k is, factors that are numbers taken into the scale.

    A Transpose of k's last two axes is passed where a factor stands before it, and left alone otherwise.
    """
    kept = edge = (product, place)
    passed: list[int] = []
    swaps = 0
    while True:
        value = facts.nodes[edge[0]].inputs[edge[1]]
        maker = facts.maker_of(value)
        if value is None or maker is None or facts.only_reader(value) is None:
            return kept
        factor = _factor(facts.nodes[maker])
        if factor is None and not (place == 1 and _swaps_last_axes(facts.nodes[maker])):
            return kept
        passed.append(maker)
        edge = (maker, 0 if factor is None else factor[0])
        if factor is None:
            swaps += 1
            continue
        match.scale *= factor[1]
        match.nodes += passed
        match.is_transposed ^= swaps % 2 == 1
        kept, passed, swaps = edge, [], 0


def _swaps_last_axes(node: ir.Node) -> bool:
    order = node.attributes.get("perm")
    return is_operator(node, "Transpose") and order is not None and tuple(order.as_ints()) == (0, 1, 3, 2)


def _factor(node: ir.Node) -> tuple[int, float] | None:
    """For Mul or Div by a number: which input is scaled, and by what."""
    if not is_operator(node, "Mul", "Div"):
        return None
    numbers = [_number(value) for value in node.inputs]
    if numbers[1] is not None and numbers[0] is None:
        if is_operator(node, "Div"):
            return (0, 1.0 / numbers[1]) if numbers[1] else None
        return 0, numbers[1]
    if numbers[0] is not None and numbers[1] is None and is_operator(node, "Mul"):
        return 1, numbers[0]
    return None


def _number(value: ir.Value | None) -> float | None:
    array = constant_of(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _is_float_cast(node: ir.Node) -> bool:
    source = node.inputs[0] if node.inputs else None
    if not is_operator(node, "Cast") or source is None or source.dtype not in FLOATS:
        return False
    return int_attribute(node, "to", 0) in [kind.value for kind in FLOATS]


def _own_operator(position: int, facts: Facts) -> _Match:
    """ONNX's Attention on four axes, without caches, causal mask or softcap."""
    node = facts.nodes[position]
    given = [value if value is not None and value.name else None for value in node.inputs]
    q = given[0]
    shape = facts.sizes.shape(q)
    if any(value is not None for value in given[4:]) or any(facts.is_read(x) for x in node.outputs[1:]):
        raise _NoMatch("it has caches or a second output", position)
    if not set(node.attributes) <= OWN_ATTRIBUTES:
        raise _NoMatch("it has a window, or another attribute that changes which scores count", position)
    if int_attribute(node, "is_causal", 0) or float_attribute(node, "softcap", 0.0):
        raise _NoMatch("it is causal or caps its scores", position)
    if shape is None or len(shape) != _RANK or not isinstance(shape[-1], int):
        raise _NoMatch("q does not have four axes of which the last is known", position)
    scale = float_attribute(node, "scale", 0.0) or 1.0 / math.sqrt(shape[-1])
    mask = given[3] if len(given) > 3 else None
    edges = [(position, 0), (position, 1), (position, 2)]
    return _Match([position], scale, mask, is_transposed=False, edges=edges)


def _check(match: _Match, facts: Facts, position: int) -> None:
    """Raise _NoMatch where types or shapes are not what the formula says."""
    values = [facts.nodes[reader].inputs[place] for reader, place in match.edges]
    if not all(is_float(value, facts) for value in values):
        raise _NoMatch("q, k or v is not a float activation", position)
    shapes = [facts.sizes.shape(value) for value in values]
    q, k, v = ((shape or ())[:_RANK] for shape in shapes)
    if any(shape is None or len(shape) != _RANK for shape in shapes):
        raise _NoMatch("q, k or v does not have four axes", position)
    may_share = is_operator(facts.nodes[position], "Attention")
    if not (k[:2] == v[:2] and q[0] == k[0] and (q[1] == k[1] or (may_share and _is_multiple(q[1], k[1])))):
        raise _NoMatch("q, k and v are not known to have the same batch and heads", position)
    if is_operator(facts.nodes[position], "Softmax"):
        axis = int_attribute(facts.nodes[position], "axis", -1 if facts.opset >= 13 else 1)
        if axis not in (-1, _RANK - 1):
            raise _NoMatch("the Softmax is not over the last axis", position)
    if match.mask is None:
        return
    if not is_float(match.mask, facts):
        raise _NoMatch("the mask is a constant, or not of floats", position)
    mask = facts.sizes.shape(match.mask)
    scores = (*q[:3], k[3] if match.is_transposed else k[2])
    if mask is None or len(mask) > _RANK:
        raise _NoMatch("the mask has an unknown shape", position)
    if any(size not in (1, full) for size, full in zip(mask[::-1], scores[::-1], strict=False)):
        raise _NoMatch("the mask is not known to have the shape of the scores", position)


def _is_multiple(heads: object, shared: object) -> bool:
    """Whether every head of k and v serves a whole number of heads of q."""
    return isinstance(heads, int) and isinstance(shared, int) and shared > 0 and heads % shared == 0


def _region(match: _Match, facts: Facts, name: str) -> Region:
    members = sorted(match.nodes)
    edges = tuple((facts.nodes[reader].name or "", place) for reader, place in match.edges)
    values = [facts.nodes[reader].inputs[place] for reader, place in match.edges]
    names = [value.name or "" for value in (*values, match.mask) if value is not None]
    formula = Attention(edges, match.scale, match.is_transposed, match.mask is not None)
    return Region(
        name,
        formula,
        tuple(facts.nodes[position].name or "" for position in members),
        tuple(dict.fromkeys(names)),
        facts.crossing(members)[1],
    )
