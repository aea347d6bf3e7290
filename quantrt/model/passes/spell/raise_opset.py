# SPDX-License-Identifier: Apache-2.0
"""A graph of opset 13 or later at a later one.

Opset 19 is the first with float8 codes in QuantizeLinear, 21 the first with codes of 16 and 4 bits and with
scales for blocks. Of the operators that changed in between, most only gained types, or attributes whose
defaults are what the operator did before. These are written otherwise:

    ReduceMax and the like      axes became an input in 18 (ReduceSum's are one in 13)
    Split                       says in 18 how many equal parts there are, where it has no sizes
    RoiAlign                    rounds in 16 as before only when told to
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, is_operator
from quantrt.model.passes.spell.convert_opset import TARGET_OPSET

__all__ = ["FLOAT8_OPSET", "NARROW_OPSET", "raise_opset", "why_not_raised"]

FLOAT8_OPSET = 19
NARROW_OPSET = 21

IR_VERSIONS = {17: 8, FLOAT8_OPSET: 9, NARROW_OPSET: 10}
"""The format of files that goes with each: that of the ONNX release which brought it."""

CHANGED = {"DFT": 20, "GridSample": 20, "GroupNormalization": 21}
"""Operators that are written otherwise from an opset on, in a way that is not known here."""

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSumSquare",
)  # fmt: skip

AXES_OPSET = 18
ROI_OPSET = 16


def why_not_raised(graph: ir.Model, opset: int = FLOAT8_OPSET) -> str | None:
    """Why a graph cannot be brought to an opset; None when it can, or is there."""
    old = graph.opset_imports.get("", opset)
    if old < TARGET_OPSET:
        codes = "float8 codes" if opset == FLOAT8_OPSET else f"operators of opset {opset}"
        return f"opset {old} has no {codes}, and no known way to one that has"
    for part in graph.graphs():
        for node in part:
            if is_operator(node, *CHANGED) and old < CHANGED[node.op_type] <= opset:
                return f"'{node.name}' ({node.op_type}) is not the same at opset {opset}"
    return None


def raise_opset(graph: ir.Model, opset: int = FLOAT8_OPSET) -> int:
    """Bring a graph that `why_not_raised` has nothing against to an opset, in place; 1 if it was older."""
    old = graph.opset_imports.get("", opset)
    if old >= opset:
        return 0
    for part in graph.graphs():
        for node in part:
            _respell(graph, node, old)
    graph.opset_imports[""] = opset
    graph.ir_version = max(graph.ir_version, IR_VERSIONS[opset])
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
