# SPDX-License-Identifier: Apache-2.0
"""A graph of opset 13 or later at a later one, up to 19, the first with float8 codes in QuantizeLinear.

Of the operators that changed between the two, most only gained types, or attributes whose defaults are what
the operator did before. These are written otherwise:

    ReduceMax and the like      axes became an input in 18 (ReduceSum's are one in 13)
    Split                       says in 18 how many equal parts there are, where it has no sizes
    RoiAlign                    rounds in 16 as before only when told to
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, is_operator
from quantrt.model.passes.convert_opset import TARGET_OPSET

__all__ = ["FLOAT8_OPSET", "raise_opset", "why_not_raised"]

FLOAT8_OPSET = 19

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSumSquare",
)  # fmt: skip

AXES_OPSET = 18
ROI_OPSET = 16


def why_not_raised(graph: ir.Model) -> str | None:
    """Why a graph cannot be brought to opset 19; None when it can, or is there."""
    opset = graph.opset_imports.get("", FLOAT8_OPSET)
    if opset < TARGET_OPSET:
        return f"opset {opset} has no float8 codes, and no known way to one that has"
    return None


def raise_opset(graph: ir.Model) -> int:
    """Bring a graph that `why_not_raised` has nothing against to opset 19, in place; 1 if it was older."""
    old = graph.opset_imports.get("", FLOAT8_OPSET)
    if old >= FLOAT8_OPSET:
        return 0
    for part in graph.graphs():
        for node in part:
            _respell(graph, node, old)
    graph.opset_imports[""] = FLOAT8_OPSET
    return 1


def _respell(graph: ir.Model, node: ir.Node, old: int) -> None:
    """Write one node as the new opset wants it."""
    if is_operator(node, *REDUCTIONS) and old < AXES_OPSET and "axes" in node.attributes:
        axes = np.asarray(node.attributes.pop("axes").as_ints(), np.int64)
        node.resize_inputs(2)
        node.replace_input_with(1, add_constant(graph, f"{node.name}_axes", axes))
    elif is_operator(node, "Split") and old < AXES_OPSET and not _has_input(node, 1):
        node.attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(node.outputs))
    elif is_operator(node, "RoiAlign") and old < ROI_OPSET:
        name = "coordinate_transformation_mode"
        node.attributes[name] = ir.AttrString(name, "output_half_pixel")


def _has_input(node: ir.Node, index: int) -> bool:
    return len(node.inputs) > index and node.inputs[index] is not None
