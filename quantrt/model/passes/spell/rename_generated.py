# SPDX-License-Identifier: Apache-2.0
"""Constants under names that ONNX Runtime generates get others.

A file that it has optimized has such as "gemm_input_shape" and "gemm_input_shape_token_3". Where its
optimizer, run again, merges two of equal contents, it gives the name of the one that went to a new constant,
and ends in an error: "Attempt to replace the existing tensor" (1.31, ConstantSharing and MatMulAddFusion).
"""

from __future__ import annotations

import re

import onnx_ir as ir

from quantrt.ir.edit import take_name, taken_names

__all__ = ["rename_generated"]

_GENERATED = re.compile(r"^gemm_(?:in|out)put_shape$|_token_\d+$")


def rename_generated(graph: ir.Model) -> int:
    """Rename initializers of the main graph that are no inputs; how many."""
    ends = {*graph.graph.inputs, *graph.graph.outputs}
    found = [
        value
        for name, value in graph.graph.initializers.items()
        if _GENERATED.search(name) and value not in ends
    ]
    taken = taken_names(graph) if found else set()
    for value in found:
        name = take_name(f"{value.name}.given", taken)
        del graph.graph.initializers[value.name or ""]
        value.name = name
        if value.const_value is not None:
            value.const_value.name = name
        graph.graph.register_initializer(value)
    return len(found)
