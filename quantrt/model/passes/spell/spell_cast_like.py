# SPDX-License-Identifier: Apache-2.0
"""CastLike becomes Cast where the type that it takes over is known.

    CastLike(a, b)  ->  Cast(a, to=float32)        # b is float32

torch's exporter writes constants so (`torch.onnx.export(..., optimize=False)`): the bias of zeros that it
gives a convolution without one is cast like what the convolution reads, and is no constant for that reason.
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.ir.shapes import infer_shapes

__all__ = ["spell_cast_like"]


def spell_cast_like(graph: ir.Model) -> int:
    """Rewrite every CastLike beside a value of known type, subgraphs included; how many."""
    found = [node for part in graph.graphs() for node in part if is_operator(node, "CastLike")]
    if any(_type_of(node) is None for node in found):
        infer_shapes(graph, follow_values=False)
    count = 0
    for node in found:
        kind = _type_of(node)
        if kind is None:
            continue
        node.resize_inputs(1)
        node.op_type = "Cast"
        node.attributes["to"] = ir.AttrInt64("to", int(kind))
        count += 1
    return count


def _type_of(node: ir.Node) -> ir.DataType | None:
    """Of the value whose type a CastLike takes over."""
    like = node.inputs[1]
    return None if like is None else like.dtype
