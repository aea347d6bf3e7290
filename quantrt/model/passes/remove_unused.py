# SPDX-License-Identifier: Apache-2.0
"""Nodes and initializers that no output depends on are removed."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

__all__ = ["remove_unused"]


def remove_unused(graph: ir.Model) -> int:
    """Remove dead nodes and initializers; how many. Optional outputs that nobody reads lose their names."""
    before = _size(graph)
    RemoveUnusedNodesPass()(graph)
    return before - _size(graph)


def _size(graph: ir.Model) -> int:
    return sum(1 for _ in graph.graph.all_nodes()) + len(graph.graph.initializers)
