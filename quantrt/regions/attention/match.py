# SPDX-License-Identifier: Apache-2.0
"""What is recognised of an attention while its nodes are followed."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

__all__ = ["Mask", "Match", "NoMatchError"]


class NoMatchError(Exception):
    """A recognition that failed at a node."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


@dataclass(frozen=True)
class Mask:
    """One tensor that says which keys a query sees.

    Attributes:
        kind, number: as Attention.mask_kind and Attention.mask_value.
        position: of the node that reads it.
    """

    value: ir.Value
    kind: str
    number: float
    position: int


@dataclass
class Match:
    """One attention.

    Attributes:
        nodes: positions.
        masks: as they were met, from the Softmax up.
        edges: of q, k and v: the position that reads each, and at which input.
    """

    nodes: list[int]
    scale: float = 1.0
    masks: list[Mask] = field(default_factory=list)
    is_causal: bool = False
    is_transposed: bool = True
    edges: list[tuple[int, int]] = field(default_factory=list)
