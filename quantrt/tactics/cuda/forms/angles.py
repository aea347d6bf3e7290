# SPDX-License-Identifier: Apache-2.0
"""What the sine and cosine of a position follow from: it is stored as float32 in an engine of halves.

float16 rounds by up to 2^-12 of a number: of an angle of 60 turns, as the coordinates of a prompt have in
SAM's encodings, that is a tenth of a radian. Positions are coordinates, times and numbers of tokens, not
activations: few elements, and no layer in front of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from quantrt.quantize.patterns.coordinates import MOST_COORDINATES
from quantrt.regions.formula_expression import expression_of
from quantrt.regions.region import Concat, Gemm, Host, Nodes, Region, Regions, Rows, View

__all__ = ["angles"]

WAVES = frozenset(("sin", "cos"))
OPERATORS = frozenset(("Sin", "Cos"))


def angles(graph: ir.Graph, regions: Regions) -> frozenset[str]:
    """What sines and cosines are taken of, and what that follows from, as far as these are positions."""
    nodes = {node.name or "": node for node in graph}
    makers = {value: region for region in regions.regions for value in region.outputs}
    keeping = [region for region in regions.regions if _keeps_position(region, graph)]
    positions: set[str] = {value.name or "" for value in graph.inputs}
    for region in keeping:
        if all(value in positions for value in region.inputs):
            positions.update(region.outputs)
    found: set[str] = set()
    left = [value for region in keeping if _waves(region, nodes) for value in region.inputs]
    while left:
        value = left.pop()
        if value in positions and value not in found and value not in regions.host_values:
            found.add(value)
            left += makers[value].inputs if value in makers else ()
    return frozenset(found)


def _keeps_position(region: Region, graph: ir.Graph) -> bool:
    """Whether what a region makes of positions is one."""
    formula = region.formula
    if isinstance(formula, Gemm):
        weight = graph.initializers.get(formula.weight)
        shape = None if weight is None or weight.shape is None else weight.shape.numpy()
        return shape is not None and shape[formula.is_transposed] <= MOST_COORDINATES
    return isinstance(formula, Rows | View | Concat | Nodes | Host)


def _waves(region: Region, nodes: Mapping[str, ir.Node]) -> bool:
    """Whether a region takes sines or cosines."""
    if isinstance(region.formula, Nodes):
        return any(nodes[name].op_type in OPERATORS for name in region.nodes)
    expression = expression_of(region.formula)
    return expression is not None and any(step.op in WAVES for step in expression.instructions)
