# SPDX-License-Identifier: Apache-2.0
"""Concat of float activations."""

from __future__ import annotations

from quantrt.ir.edit import int_attribute, is_operator
from quantrt.regions.anchors.anchor import is_float
from quantrt.regions.facts.facts import Facts
from quantrt.regions.region import Concat

__all__ = ["find_concat"]


def find_concat(position: int, facts: Facts) -> Concat | None:
    """The formula of a node; None where it is no Concat, or not of float activations alone."""
    node = facts.nodes[position]
    if not is_operator(node, "Concat") or "axis" not in node.attributes:
        return None
    if not all(facts.is_activation(value) and is_float(value, facts) for value in node.inputs):
        return None
    name = node.name or ""
    edges = tuple((name, index) for index in range(len(node.inputs)))
    return Concat(edges, int_attribute(node, "axis", 0))
