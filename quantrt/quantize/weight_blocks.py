# SPDX-License-Identifier: Apache-2.0
"""Weights in 4 bits in ONNX's own operators: INT4 behind a DequantizeLinear, a scale for each block.

    weight = DequantizeLinear<axis, block_size>(codes, scales)

Codes lie as the weight does, and the opset is 21 at least. OpenVINO keeps them as codes and reads these in
its products and lookups; it wants blocks of one size.
"""

from __future__ import annotations

import ml_dtypes
import onnx_ir as ir

from quantrt.errors import ModelError
from quantrt.ir.edit import add_constant
from quantrt.model.passes.spell.raise_opset import NARROW_OPSET, why_not_raised
from quantrt.quantize.algorithms.group_rounding import Groups

__all__ = ["add_blocks", "check_opset"]


def check_opset(graph: ir.Model) -> None:
    """See that a graph can be brought to an opset with such weights.

    Raises:
        ModelError: it cannot; says why.
    """
    reason = why_not_raised(graph, NARROW_OPSET)
    if reason is not None:
        raise ModelError("the model cannot have weights in 4 bits", got=reason, hint="--target ort")


def add_blocks(
    graph: ir.Model, node: ir.Node, index: int, groups: Groups, *, is_transposed: bool
) -> ir.Value:
    """A weight from its codes, made in front of the node that reads it.

    Args:
        index: of the weight among the node's inputs.
        groups: the weight as [K, N].
        is_transposed: the node reads it as [N, K].
    """
    weight = node.inputs[index]
    name = "" if weight is None else weight.name
    codes, scales = (array.T if is_transposed else array for array in (groups.codes, groups.scales))
    operands = [
        add_constant(graph, f"{name}_int4", codes.astype(ml_dtypes.int4)),
        add_constant(graph, f"{name}_int4_scales", scales),
    ]
    attributes = {"axis": int(is_transposed), "block_size": groups.group_size}
    decode = ir.node(
        "DequantizeLinear", operands, attributes=attributes, name=f"{operands[0].name}_dequantize"
    )
    made = decode.outputs[0]
    made.name = f"{operands[0].name}_dequantized"
    made.type, made.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(codes.shape)
    graph.graph.insert_before(node, decode)
    return made
