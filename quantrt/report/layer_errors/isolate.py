# SPDX-License-Identifier: Apache-2.0
"""Every layer quantized alone, in one pass: beside each layer of the float path runs its quantized twin.

The twin reads what the float path makes, rounded, and its own quantized weights; nobody reads what it makes.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.quantize.qdq.switches import SUFFIX, Switched, copy_node
from quantrt.report.layer_errors.extents import Extent

__all__ = ["with_twins"]

TWIN = f"{SUFFIX}alone"


def with_twins(switched: Switched, extents: Sequence[Extent]) -> tuple[ir.Model, dict[str, str]]:
    """The graph with twins, and the name of what the twin of each extent makes, by the layer's name."""
    names = {edge: value.name or "" for edge, value in switched.quantized.items()}
    model = clone(switched.graph)
    values = {value.name or "": value for node in model.graph for value in node.outputs}
    values |= dict(model.graph.initializers.items())
    quantized = {edge: values[name] for edge, name in names.items()}
    nodes = {node.name or "": node for node in model.graph}
    made: dict[str, str] = {}
    for extent in extents:
        if not extent.nodes:
            made[extent.layer.name] = quantized[(extent.layer.name, 0)].name or ""
            continue
        twins: dict[ir.Value, ir.Value] = {}
        last = nodes[extent.nodes[0]]
        for name in extent.nodes:
            node = nodes[name]
            inputs = [
                None if value is None else twins.get(value) or quantized.get((name, index), value)
                for index, value in enumerate(node.inputs)
            ]
            last = copy_node(node, inputs, f"{TWIN}{extent.layer.index}")
            model.graph.append(last)
            twins.update(zip(node.outputs, last.outputs, strict=True))
        made[extent.layer.name] = last.outputs[0].name or ""
    model.graph.sort()
    return model, made
