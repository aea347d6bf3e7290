# SPDX-License-Identifier: Apache-2.0
"""Initializers that are graph inputs too become plain constants."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["drop_initializer_inputs"]

_MIN_IR_VERSION = 4  # before it, every initializer had to be a graph input


def drop_initializer_inputs(graph: ir.Model) -> int:
    """Remove from the graph's inputs those that have an initializer; how many had.

    Such an input is a weight with a default a caller might override; folding needs it constant.
    """
    constants = set(graph.graph.initializers.values())
    kept = [value for value in graph.graph.inputs if value not in constants]
    count = len(graph.graph.inputs) - len(kept)
    if count:
        graph.graph.inputs.clear()
        graph.graph.inputs.extend(kept)
    graph.ir_version = max(graph.ir_version, _MIN_IR_VERSION)
    return count
