# SPDX-License-Identifier: Apache-2.0
"""One row of the operator table, and what an operator may ask of the graph it runs in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

__all__ = ["Body", "Context", "Operator", "Value"]

Value: TypeAlias = Any
"""A tensor, a list of tensors (an ONNX sequence), or None (an absent input or an empty optional)."""


class Body(Protocol):
    """A subgraph of If, Loop or Scan, with the values around it captured."""

    device: torch.device

    @property
    def output_count(self) -> int:
        """Outputs of the subgraph."""

    def __call__(self, *inputs: Value) -> tuple[Value, ...]:
        """Run the subgraph once."""

    def empty(self, output: int) -> torch.Tensor:
        """A tensor of the type and shape that an output is declared with, unknown sizes 0."""


@dataclass(frozen=True)
class Context:
    """What a node knows beyond its inputs and attributes.

    Attributes:
        device: where a function that has no input makes its tensors.
        output_count: outputs that the node names, trailing unnamed ones left out.
    """

    device: torch.device
    output_count: int


@dataclass(frozen=True)
class Operator:
    """A function that computes one ONNX operator from opset `since` on.

    Attributes:
        since: first opset of the operator set that `function` is right for.
        until: last one; None: the next row of the same operator, or the newest opset, ends it.
        function: inputs by position, attributes by keyword; returns a value or a tuple of them.
        moves: copies elements without computing with them. Types that torch can store but not index
            (float8, int4, uint64 ...) are then run as bytes of the same width.
        takes_context: the function's keyword `context` wants a `Context`.
    """

    op_type: str
    since: int
    function: Callable[..., Value]
    until: int | None = None
    moves: bool = False
    takes_context: bool = False
