# SPDX-License-Identifier: Apache-2.0
"""Placement as a configuration wants it: its exclusions, and its quantization level."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from quantrt.config import QuantizeConfig
from quantrt.quantize.patterns.fused_output import FUSED_ACTIVATIONS
from quantrt.quantize.placement.exclusions import excluded_nodes, named_nodes
from quantrt.quantize.placement.levels import left_in_float
from quantrt.quantize.placement.placement import place
from quantrt.quantize.quantized_model import Placement
from quantrt.quantize.target import Target, per_token

__all__ = ["kept_in_float", "left_out", "place_by_config"]


def place_by_config(
    graph: ir.Model, target: Target, config: QuantizeConfig, kept_float: Mapping[str, str] | None = None
) -> Placement:
    """Apply a target's rules to a canonical float graph, as far as a configuration allows.

    Args:
        kept_float: names of further nodes that stay float, with the reason.

    Raises:
        UsageError: an exclusion, or one of the only nodes, matches no node.
    """
    kept = {
        **left_in_float(graph.graph, config.quantization_level),
        **left_out(graph.graph, config.only, target),
        **(kept_float or {}),
    }
    target = per_token(target) if config.activations == "per-token" else target
    return place(graph, target, exclude=config.exclude, exclude_types=config.exclude_types, kept_float=kept)


def kept_in_float(graph: ir.Graph, target: Target, config: QuantizeConfig) -> dict[str, str]:
    """Names of all nodes that a configuration keeps in float, whether they have 8-bit forms or not.

    Raises:
        UsageError: an exclusion, or one of the only nodes, matches no node.
    """
    return {
        **left_in_float(graph, config.quantization_level),
        **left_out(graph, config.only, target),
        **excluded_nodes(graph, config.exclude, config.exclude_types),
    }


def left_out(graph: ir.Graph, only: tuple[str, ...], target: Target) -> dict[str, str]:
    """Names of the nodes that may not be 8-bit where `only` some may, with the reason; none without such.

    What moves codes, and activations that are computed inside a kernel, go with the nodes beside them.

    Raises:
        UsageError: a name or glob matches no node.
    """
    if not only:
        return {}
    meant = {name for names in named_nodes(graph, only, "--only").values() for name in names}
    reason = "none of those that may be 8-bit: " + ", ".join(f"'{glob}'" for glob in only)
    return {
        node.name or "": reason
        for node in graph
        if (node.name or "") not in meant
        and node.op_type not in FUSED_ACTIVATIONS
        and not ((rule := target.rule(node.op_type)) is not None and rule.passes)
    }
