# SPDX-License-Identifier: Apache-2.0
"""Which edges of a graph are quantized for one target: rules applied to nodes, no numbers.

1. Compute nodes (convolutions, products) and residual sums ask for 8-bit inputs, as the rules say.
2. Pools and concatenations join where their inputs are quantized anyway.
3. Value-preserving operators (MaxPool, Reshape, ...) run on codes: either the quantization moves above them,
   or, where the target quantizes outputs, both sides share one grid.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from quantrt.quantize.placement.ask import ask
from quantrt.quantize.placement.carry import carry, join
from quantrt.quantize.placement.exclusions import excluded_nodes
from quantrt.quantize.placement.obstacle import obstacle_of
from quantrt.quantize.placement.placed import Placed, node_name
from quantrt.quantize.quantized_model import Placement
from quantrt.quantize.target import Target

__all__ = ["place"]


def place(
    graph: ir.Model,
    target: Target,
    *,
    exclude: tuple[str, ...] = (),
    exclude_types: tuple[str, ...] = (),
    kept_float: Mapping[str, str] | None = None,
) -> Placement:
    """Apply a target's rules to a canonical float graph.

    Args:
        graph: nodes have unique names; shapes are known where inference could tell.
        exclude: node names or globs that stay float.
        exclude_types: operator types that stay float.
        kept_float: names of further nodes that stay float, with the reason.

    Raises:
        UsageError: a name, glob or type matches no node.
    """
    excluded = {**(kept_float or {}), **excluded_nodes(graph.graph, exclude, exclude_types)}
    obstacle = obstacle_of(graph, target)
    if obstacle is not None:
        excluded = {node_name(node): obstacle for node in graph.graph}
    placed = Placed(graph, target, excluded)
    for node in graph.graph:
        ask(placed, node)
    for node in graph.graph:
        join(placed, node)
    carry(placed)
    return placed.placement()
