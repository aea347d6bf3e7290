# SPDX-License-Identifier: Apache-2.0
"""Which tensors of a file the passes took away, and who has their values now."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from quantrt.ir.same_values import names_of

__all__ = ["absent_tensors", "tensors_of"]


def tensors_of(graph: ir.Model) -> dict[str, ir.Value]:
    """Every named tensor of the main graph: inputs, constants and results of nodes."""
    made = (value for node in graph.graph for value in node.outputs)
    values = (*graph.graph.inputs, *graph.graph.initializers.values(), *made)
    return {value.name: value for value in values if value.name}


def absent_tensors(before: Iterable[str], graph: ir.Model) -> dict[str, str | None]:
    """Those of the tensors named that a graph has no more -> the one with the very same values, or None."""
    now = tensors_of(graph)
    same = {other: name for name, value in now.items() for other in names_of(value)}
    return {name: same.get(name) for name in before if name not in now}
