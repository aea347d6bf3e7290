# SPDX-License-Identifier: Apache-2.0
"""Between which values the readers of an activation tell them apart: to HardSwish all below -3 is one value.

    f(x) = f(clip(x, lo, hi))  for every reader f        =>  codes outside [lo, hi] are of no use

Where kernels make 8-bit values and the activation function comes behind these, half of the codes may be of
values that it makes 0 of. A range that ends where the function's does loses nothing, and its step is finer.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import onnx_ir as ir

from quantrt.ir.edit import float_attribute, is_operator

__all__ = ["ALL", "Bounds", "told_apart"]

Bounds = tuple[float, float]

ALL: Bounds = (-math.inf, math.inf)
"""Of a value whose readers tell all values apart."""


def told_apart(graph: ir.Graph, names: Collection[str]) -> dict[str, Bounds]:
    """The least and the greatest value that some reader tells from those beyond, of each of these values."""
    return {
        value.name: _bounds(value)
        for node in graph
        for value in node.outputs
        if value.name is not None and value.name in names
    }


def _bounds(value: ir.Value) -> Bounds:
    """The widest of all readers; whoever reads an output of the graph sees everything."""
    uses = value.uses()
    if value.is_graph_output() or not uses:
        return ALL
    found = [_bounds_of(node) for node, _ in uses]
    return min(lo for lo, _ in found), max(hi for _, hi in found)


def _bounds_of(node: ir.Node) -> Bounds:
    """Outside of these an operator of one input makes no difference between values."""
    if is_operator(node, "HardSwish"):
        return -3.0, math.inf
    if is_operator(node, "HardSigmoid"):
        alpha, beta = float_attribute(node, "alpha", 0.2), float_attribute(node, "beta", 0.5)
        return (-beta / alpha, (1 - beta) / alpha) if alpha > 0 else ALL
    return ALL
