# SPDX-License-Identifier: Apache-2.0
"""What references of equal form make of tensors of equal shapes, worked out once for all of them.

A network repeats its blocks: formulas that differ by names and by the values of scalars alone have outputs of
the same shapes, strides and types.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from quantrt.plan.program import Step

__all__ = ["Alike"]

RUNNER = "formula"
"""Whose steps say in their options all that the shapes of their outputs follow from."""

NAMES = ("name", "use", "x", "w", "weight", "shift", "edges", "mask_constant")
"""Fields of formulas that hold names: only which of them are the same counts."""

Compute = Callable[[], Sequence[Any]]

_Facts = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]


class Alike:
    """Outputs of steps on torch's meta device, which have no values."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[_Facts]] = {}

    def outputs(
        self, step: Step, inputs: Sequence[Any], weights: Sequence[np.ndarray], compute: Compute
    ) -> Sequence[Any]:
        """The outputs of a step.

        Args:
            weights: of the step, in its order.
            compute: makes them where no step like it was seen.
        """
        if step.runner != RUNNER or not all(isinstance(tensor, torch.Tensor) for tensor in inputs):
            return compute()
        numbers: dict[str, int] = {}
        key = (
            tuple((name, _unnamed(item, numbers)) for name, item in sorted(step.options.items())),
            tuple(map(_facts, inputs)),
            tuple((str(array.dtype), array.shape, array.strides) for array in weights),
        )
        if key not in self._known:
            made = compute()
            self._known[key] = [_facts(tensor) for tensor in made]
            return made
        return [
            torch.empty_strided(shape, strides, dtype=dtype, device="meta")
            for dtype, shape, strides in self._known[key]
        ]


def _facts(tensor: torch.Tensor) -> _Facts:
    return tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())


def _unnamed(value: Any, numbers: dict[str, int], *, is_name: bool = False) -> Hashable:
    """A formula's JSON, its names numbered as they first occur, without the values of scalars."""
    if isinstance(value, Mapping):
        is_scalar = value.get("kind") == "scalar"
        return tuple(
            (name, _unnamed(item, numbers, is_name=name in NAMES))
            for name, item in value.items()
            if not (is_scalar and name == "value")
        )
    if isinstance(value, list | tuple):
        return tuple(_unnamed(item, numbers, is_name=is_name) for item in value)
    if is_name and isinstance(value, str) and value:
        return numbers.setdefault(value, len(numbers))
    return value  # type: ignore[no-any-return]
