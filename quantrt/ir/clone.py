# SPDX-License-Identifier: Apache-2.0
"""A deep copy of a graph that shares its tensors."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["clone"]


def clone(graph: ir.Model) -> ir.Model:
    """A copy whose nodes and values can be edited without touching `graph`.

    Tensors are immutable and shared, so a copy costs nothing per weight byte. Nodes must be in
    topological order, as every loaded model's are.
    """
    return graph.clone()
