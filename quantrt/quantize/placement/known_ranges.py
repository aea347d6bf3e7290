# SPDX-License-Identifier: Apache-2.0
"""Placement where not every activation has a range: what reads or makes one without stays float."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from quantrt.config import QuantizeConfig
from quantrt.errors import InternalError
from quantrt.ir.edit import is_operator
from quantrt.quantize.patterns.fused_output import FUSED_ACTIVATIONS
from quantrt.quantize.placement.place_by_config import place_by_config
from quantrt.quantize.quantized_model import Placement
from quantrt.quantize.target import Target

__all__ = ["KnownPlacement", "makers_of", "place_known"]


@dataclass(frozen=True)
class KnownPlacement:
    """A placement that needs no range but the known ones.

    Attributes:
        placement: the result.
        wanted: names of the activations that would be quantized if all had ranges.
        costs: for each activation without range, the nodes that are float because of it.
        others: nodes that are float because those are: sums, pools and activations beside them.
    """

    placement: Placement
    wanted: frozenset[str]
    costs: Mapping[str, tuple[str, ...]]
    others: tuple[str, ...]


def place_known(
    graph: ir.Model, target: Target, config: QuantizeConfig, known: Collection[str], source: str
) -> KnownPlacement:
    """Apply a target's rules as far as there are ranges.

    Args:
        known: names of the activations that have one.
        source: where they come from, for the reasons given.

    Raises:
        UsageError: an exclusion matches nothing.
    """
    first = place_by_config(graph, target, config)
    makers = {value.name or "": node for node in graph.graph for value in node.outputs}
    placement, kept_float = first, dict[str, str]()
    costs: dict[str, dict[str, None]] = {}
    while missing := sorted(placement.values - set(known)):
        before = len(kept_float)
        for name in missing:
            readers = (use for use, value in placement.uses.items() if value == name)
            nodes = dict.fromkeys(use[0] for use in readers if use not in placement.per_token)
            if target.quantizes_outputs:
                nodes |= dict.fromkeys(makers_of(makers, name))
            cause = _source(makers, target, name, known)
            for node in nodes:
                kept_float.setdefault(node, f"no range for '{cause}' in {source}")
                costs.setdefault(cause, {})[node] = None
        if len(kept_float) == before:
            raise InternalError(f"'{missing[0]}' is quantized though nothing reads or makes it")
        placement = place_by_config(graph, target, config, kept_float)
    lost = _int8(first) - _int8(placement)
    direct = {name: tuple(node for node in nodes if node in lost) for name, nodes in costs.items()}
    named = {node for nodes in direct.values() for node in nodes}
    others = tuple(row.node for row in first.decisions if row.node in lost - named)
    return KnownPlacement(placement, first.values, direct, others)


def makers_of(makers: Mapping[str, ir.Node], name: str) -> Iterator[str]:
    """The node that makes a value, and the one whose kernel computes that node too."""
    node = makers.get(name)
    while node is not None:
        yield node.name or ""
        source = node.inputs[0] if node.inputs else None
        node = source.producer() if is_operator(node, *FUSED_ACTIVATIONS) and source is not None else None


def _source(makers: Mapping[str, ir.Node], target: Target, name: str, known: Collection[str]) -> str:
    """The first value without range whose values these are, before they were moved."""
    node = makers.get(name)
    while node is not None and node.inputs and node.inputs[0] is not None and _moves(node, target):
        if (before := node.inputs[0].name or "") in known:
            break
        name, node = before, makers.get(before)
    return name


def _moves(node: ir.Node, target: Target) -> bool:
    rule = target.rule(node.op_type) if is_operator(node, node.op_type) else None
    return rule is not None and rule.passes and node.op_type != "Concat"


def _int8(placement: Placement) -> frozenset[str]:
    return frozenset(decision.node for decision in placement.decisions if decision.is_int8)
