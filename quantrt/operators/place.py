# SPDX-License-Identifier: Apache-2.0
"""In which memory the inputs of a node are: sizes and axes in the host's, tensors on the device.

Reading a number that lies on a GPU makes the host wait for everything before it, and cannot be part of a CUDA
graph. Here a node runs on the device when one of its tensors is there, on the host when none is; the inputs
that its function reads as numbers stay where they are, and shapes are made on the host.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from quantrt.operators.numbers import NUMBERS
from quantrt.operators.operator import Value

__all__ = ["Placement"]

_SHAPES = ("Shape", "Size")
_HANDED_ON = (
    "Identity", "If", "Loop", "Scan", "SequenceMap", "SequenceAt", "SequenceConstruct", "SequenceEmpty",
    "SequenceErase", "SequenceInsert", "SequenceLength", "Optional", "OptionalGetElement",
    "OptionalHasElement",
)  # fmt: skip
"""Operators that compute nothing with their inputs themselves."""


class Placement:
    """Puts the inputs of nodes where they are wanted.

    Args:
        device: where tensors go when a node runs there.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._copies: dict[int, torch.Tensor | None] = {}

    def add_constant(self, tensor: torch.Tensor) -> None:
        """Keep one copy of a tensor in host memory on the device, made when it is first wanted.

        The tensor must live as long as this object.
        """
        self._copies[id(tensor)] = None

    def place(self, op_type: str, values: Sequence[Value]) -> list[Value]:
        """The inputs of one node."""
        if op_type in _SHAPES:
            return [_shadow(value) if isinstance(value, torch.Tensor) else value for value in values]
        if op_type in _HANDED_ON:
            return list(values)
        numbers = NUMBERS.get(op_type, ())
        tensors = [x for n, x in enumerate(values) if n not in numbers and isinstance(x, torch.Tensor)]
        if all(x.device.type == "cpu" for x in tensors):
            return list(values)
        return [x if n in numbers else self._moved(x) for n, x in enumerate(values)]

    def _moved(self, value: Value) -> Value:
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            return value
        if id(value) not in self._copies:
            return value.to(self.device)
        copy = self._copies[id(value)]
        if copy is None:
            copy = self._copies[id(value)] = value.to(self.device)
        return copy


def _shadow(x: torch.Tensor) -> torch.Tensor:
    """A tensor in host memory with the shape and type of x and a single element, undefined."""
    return torch.empty((), dtype=x.dtype).expand(x.shape)
