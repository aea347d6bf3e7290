# SPDX-License-Identifier: Apache-2.0
"""Softmax attention as exporters spell it.

    MatMul(q, k) [-> Mul, Div] [-> Add, Where mask] -> Softmax [-> Where(IsNaN, 0, .)] -> MatMul(., v)

with Mul and Div by a number on q, on k, or on both, as torch spells its scale; masks in any order; k's last
axes swapped by a Transpose, or by a Reshape to three axes, a Transpose and a Reshape back; heads of k and v
repeated for several heads of q by Unsqueeze, Expand and Reshape. The IsNaN guard that torch writes for rows
masked by -inf alone is dropped: a query that sees nothing has zeros already.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator, number_of, order_of
from quantrt.regions.anchors.anchor import FLOATS
from quantrt.regions.attention.match import Mask, Match, NoMatchError
from quantrt.regions.facts.facts import Facts

__all__ = ["follow_operand", "has_equal_heads", "recognise_softmax"]

_RANK = 4
_LOW = -1e4
"""A number from here down in the place of a score is a mask's; it stays the number that it is."""


def recognise_softmax(position: int, facts: Facts) -> Match | None:
    """The attention around a Softmax; None where no product reads it.

    Raises:
        NoMatchError: there is such a product, but something else on the way to it.
    """
    second = _follow_down(position, facts)
    if second is None:
        return None
    match = _spelled(position, second, facts, repeats=True)
    # Heads of one of k and v alone may be out of reach: then those of both stay repeated.
    return match if has_equal_heads(match, facts) else _spelled(position, second, facts, repeats=False)


def _spelled(position: int, second: list[int], facts: Facts, *, repeats: bool) -> Match:
    """The attention around a Softmax.

    Args:
        second: the nodes behind it, the product with v last.
        repeats: whether heads of k and v that are repeated are read once.
    """
    match = Match([position, *second])
    first = _follow_up(position, facts, match)
    match.nodes.append(first)
    q = follow_operand((first, 0), facts, match, "q", repeats=False)
    k = follow_operand((first, 1), facts, match, "k", repeats=repeats)
    v = follow_operand((second[-1], 1), facts, match, "v", repeats=repeats)
    match.edges = [q, k, v]
    return match


def has_equal_heads(match: Match, facts: Facts) -> bool:
    """Whether k and v are known to have the same number of heads."""
    shapes = [facts.sizes.shape(facts.nodes[reader].inputs[place]) for reader, place in match.edges[1:]]
    heads = [shape[1] if shape is not None and len(shape) == _RANK else None for shape in shapes]
    return heads[0] is not None and heads[0] == heads[1]


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
    number = number_of(choice.inputs[1])
    is_guard = choice.inputs[0] is test.outputs[0] and number == 0.0 and choice.inputs[2] is value
    return list(readers) if is_guard and facts.only_reader(test.outputs[0]) == readers[1] else None


def _follow_up(position: int, facts: Facts, match: Match) -> int:
    """The product q k, found through masks and the scale in front of the Softmax."""
    value = facts.nodes[position].inputs[0]
    while True:
        maker = facts.maker_of(value)
        if value is None or maker is None or facts.only_reader(value) is None:
            raise NoMatchError("the scores have other readers, or no product makes them", position)
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
        elif is_operator(node, "Add", "Where") and match.scale == 1.0:
            side, mask = _masked(maker, facts)
            match.masks.append(mask)
            value = node.inputs[side]
        else:
            raise NoMatchError(f"a {node.op_type} stands between the scores and the Softmax", maker)


def _masked(position: int, facts: Facts) -> tuple[int, Mask]:
    """Of an Add or Where on the scores: which input they are, and the mask."""
    node = facts.nodes[position]
    if is_operator(node, "Add"):
        side = next((side for side in (0, 1) if _leads_to_scores(node.inputs[side], facts)), None)
        if side is None:
            raise NoMatchError("no product makes the scores that the mask is added to", position)
        mask = node.inputs[1 - side]
        if mask is None:
            raise NoMatchError("an Add has no second input", position)
        return side, Mask(mask, "added", -math.inf, position)
    condition, chosen = node.inputs[0], [number_of(value) for value in node.inputs[1:3]]
    side = 1 if chosen[1] is not None else 2
    number = chosen[2 - side]
    if condition is None or number is None or number > _LOW:
        raise NoMatchError("a Where puts something else than a low number in the place of scores", position)
    return side, Mask(condition, "kept" if side == 1 else "dropped", number, position)


def _leads_to_scores(value: ir.Value | None, facts: Facts) -> bool:
    """Whether a value comes from a product of activations, through numbers, casts and masks alone."""
    while True:
        maker = facts.maker_of(value)
        if maker is None:
            return False
        node = facts.nodes[maker]
        if is_operator(node, "MatMul"):
            return not any(constant_of(x) is not None for x in node.inputs)
        factor = _factor(node)
        if factor is not None:
            value = node.inputs[factor[0]]
        elif _is_float_cast(node):
            value = node.inputs[0]
        elif is_operator(node, "Where"):
            value = node.inputs[1 if number_of(node.inputs[2]) is not None else 2]
        elif is_operator(node, "Add"):
            return any(_leads_to_scores(given, facts) for given in node.inputs)
        else:
            return False


def follow_operand(
    edge: tuple[int, int], facts: Facts, match: Match, which: str, *, repeats: bool
) -> tuple[int, int]:
    """The edge behind which q, k or v is; what stands before it is taken into the match.

    Numbers go into the scale, repeated heads are read once. A Transpose of k's last two axes is passed where
    something of that kind stands before it, and left alone otherwise: it moves nothing.
    """
    kept = edge
    passed: list[int] = []
    swaps = 0
    while True:
        value = facts.nodes[edge[0]].inputs[edge[1]]
        maker = facts.maker_of(value)
        if value is None or maker is None or facts.only_reader(value) is None:
            return kept
        node = facts.nodes[maker]
        factor = None if which == "v" else _factor(node)
        repeat = _repeat(maker, facts) if repeats else None
        long_swap = _long_swap(maker, facts) if which == "k" else None
        if factor is not None:
            match.scale *= factor[1]
            found, edge = [maker], (maker, factor[0])
        elif repeat is not None or long_swap is not None:
            found = repeat or long_swap or []
            swaps += repeat is None
            edge = (found[-1], 0)
        elif which == "k" and _swaps_last_axes(node):
            passed.append(maker)
            swaps += 1
            edge = (maker, 0)
            continue
        else:
            return kept
        match.nodes += [*passed, *found]
        match.is_transposed ^= swaps % 2 == 1
        kept, passed, swaps = edge, [], 0


def _swaps_last_axes(node: ir.Node) -> bool:
    return is_operator(node, "Transpose") and order_of(node) == (0, 1, 3, 2)


def _long_swap(position: int, facts: Facts) -> list[int] | None:
    """Reshape, Transpose and Reshape that swap the last two of four axes; their positions, last first."""
    chain = _chain(position, ("Reshape", "Transpose", "Reshape"), facts)
    if chain is None or order_of(facts.nodes[chain[1]]) != (0, 2, 1):
        return None
    source, flat = (facts.sizes.shape(facts.nodes[chain[2]].inputs[0]), _made(chain[2], facts))
    result = _made(chain[0], facts)
    if source is None or flat is None or result is None or len(source) != _RANK or len(result) != _RANK:
        return None
    is_swap = source[-2:] == flat[-2:] and result[-2:] == (source[-1], source[-2])
    return chain if is_swap and source[:2] == result[:2] else None


def _repeat(position: int, facts: Facts) -> list[int] | None:
    """Unsqueeze, Expand and Reshape that repeat every head; their positions, last first."""
    chain = _chain(position, ("Reshape", "Expand", "Unsqueeze"), facts)
    if chain is None:
        return None
    source, apart = facts.sizes.shape(facts.nodes[chain[2]].inputs[0]), _made(chain[2], facts)
    spread, result = _made(chain[1], facts), _made(chain[0], facts)
    if source is None or spread is None or result is None or len(source) != _RANK or len(result) != _RANK:
        return None
    B, G, *rest = source
    is_apart = apart == (B, G, 1, *rest) and len(spread) == _RANK + 1
    if not is_apart or spread[:2] != (B, G) or list(spread[3:]) != rest:
        return None
    times = spread[2]
    is_known = isinstance(G, int) and isinstance(times, int)
    return chain if is_known and result == (B, int(G) * int(times), *rest) else None


def _chain(position: int, op_types: tuple[str, ...], facts: Facts) -> list[int] | None:
    """Positions of nodes of these operators, each read by the one before it alone, last first."""
    found: list[int] = []
    for op_type in op_types:
        if found:
            value = facts.nodes[found[-1]].inputs[0]
            maker = facts.maker_of(value)
            if value is None or maker is None or facts.only_reader(value) is None:
                return None
            position = maker
        if not is_operator(facts.nodes[position], op_type):
            return None
        found.append(position)
    return found


def _made(position: int, facts: Facts) -> tuple[int | str, ...] | None:
    return facts.sizes.shape(facts.nodes[position].outputs[0])


def _factor(node: ir.Node) -> tuple[int, float] | None:
    """For Mul or Div by a number: which input is scaled, and by what."""
    if not is_operator(node, "Mul", "Div"):
        return None
    numbers = [number_of(value) for value in node.inputs]
    if numbers[1] is not None and numbers[0] is None:
        if is_operator(node, "Div"):
            return (0, 1.0 / numbers[1]) if numbers[1] else None
        return 0, numbers[1]
    if numbers[0] is not None and numbers[1] is None and is_operator(node, "Mul"):
        return 1, numbers[0]
    return None


def _is_float_cast(node: ir.Node) -> bool:
    source = node.inputs[0] if node.inputs else None
    if not is_operator(node, "Cast") or source is None or source.dtype not in FLOATS:
        return False
    return int_attribute(node, "to", 0) in [kind.value for kind in FLOATS]
