# SPDX-License-Identifier: Apache-2.0
"""ONNX's own Attention, from opset 23 on."""

from __future__ import annotations

import math

import onnx_ir as ir

from quantrt.ir.edit import float_attribute, int_attribute
from quantrt.regions.attention.match import Mask, Match, NoMatchError
from quantrt.regions.attention.spelling import follow_operand, has_equal_heads
from quantrt.regions.facts.facts import Facts

__all__ = ["OWN_ATTRIBUTES", "recognise_operator"]

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
"""Those that are looked at, and those that mean nothing on four axes."""


def recognise_operator(position: int, facts: Facts) -> Match:
    """The attention that a node is: on four axes, without caches or softcap.

    Raises:
        NoMatchError: it is more than that.
    """
    node = facts.nodes[position]
    given = [value if value is not None and value.name else None for value in node.inputs]
    shape = facts.sizes.shape(given[0])
    if any(value is not None for value in given[4:]) or any(facts.is_read(x) for x in node.outputs[1:]):
        raise NoMatchError("it has caches or a second output", position)
    if not set(node.attributes) <= OWN_ATTRIBUTES:
        raise NoMatchError("it has a window, or another attribute that changes which scores count", position)
    if float_attribute(node, "softcap", 0.0):
        raise NoMatchError("it caps its scores", position)
    if shape is None or len(shape) != _RANK or not isinstance(shape[-1], int):
        raise NoMatchError("q does not have four axes of which the last is known", position)
    match = Match([position], is_transposed=False, is_causal=bool(int_attribute(node, "is_causal", 0)))
    match.scale = float_attribute(node, "scale", 1.0 / math.sqrt(shape[-1]))  # 0 is a scale too
    mask = given[3] if len(given) > 3 else None
    if mask is not None:
        kind = "kept" if mask.dtype == ir.DataType.BOOL else "added"
        match.masks.append(Mask(mask, kind, -math.inf, position))
    edges = [(position, 0), (position, 1), (position, 2)]
    match.edges = [edges[0], *(follow_operand(edge, facts, match, "v", repeats=True) for edge in edges[1:])]
    if not has_equal_heads(match, facts):
        match.edges, match.nodes = edges, [position]
    return match
