# SPDX-License-Identifier: Apache-2.0
"""Scales of activations that were decided elsewhere, spread over the tensors that have the same values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from quantrt.ir.edit import is_operator

__all__ = ["Given", "share_scales"]

MOVES = ("DepthToSpace", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators whose result has every value of their first input, and no other."""

PICKS = ("MaxPool", "Slice")
"""Operators that hand on some of the values of their first input, on its grid."""

COVERS = ("Dropout", "Expand", "Gather", "SpaceToDepth", "Split", "Tile")
"""Operators whose results are within the range of their first input, but may have a narrower one."""


@dataclass(frozen=True)
class Given:
    """Symmetric int8 scales of the tensors of one model.

    Attributes:
        scales: by tensor of the canonical graph, float32: int8 codes are clip(rint(x / scale), -128, 127).
        source: what to call their origin in messages.
        shared: those of `scales` that are another tensor's, as their values are -> that tensor.
        overruled: those of `shared` that had a scale of their own, which was another.
    """

    scales: Mapping[str, float]
    source: str
    shared: Mapping[str, str] = field(default_factory=dict)
    overruled: Mapping[str, float] = field(default_factory=dict)


def share_scales(graph: ir.Graph, scales: Mapping[str, float], source: str) -> Given:
    """Give tensors that only move the values of another the scale of that one, bit for bit.

    The scale of what is moved holds, also where the result had another of its own: codes do not change when
    they are moved, whatever a runtime does first.
    """
    found, shared = dict(scales), dict[str, str]()
    _hand_on(graph, found, shared)
    for node in reversed(list(graph)):
        before = _input(node, *MOVES)
        after = next(_outputs(node), None)
        if before is not None and before not in found and after in found:
            found[before], shared[before] = found[after], shared.get(after, after)
    _hand_on(graph, found, shared)  # to what else moves those
    overruled = {name: scale for name, scale in scales.items() if found[name] != scale}
    shared = {name: origin for name, origin in shared.items() if name not in scales or name in overruled}
    return Given(found, source, shared, overruled)


def _hand_on(graph: ir.Graph, found: dict[str, float], shared: dict[str, str]) -> None:
    """From inputs to results, in topological order."""
    for node in graph:
        before = _input(node, *MOVES, *PICKS, *COVERS)
        if before not in found:
            continue
        for name in _outputs(node):
            if name not in found or (is_operator(node, *MOVES, *PICKS) and found[name] != found[before]):
                found[name], shared[name] = found[before], shared.get(before, before)


def _input(node: ir.Node, *op_types: str) -> str | None:
    """The name of what such an operator moves; None for another operator or a constant."""
    value = node.inputs[0] if is_operator(node, *op_types) and node.inputs else None
    return value.name if value is not None and value.const_value is None else None


def _outputs(node: ir.Node) -> Iterator[str]:
    yield from (value.name for value in node.outputs[: None if node.op_type == "Split" else 1] if value.name)
