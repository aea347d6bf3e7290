# SPDX-License-Identifier: Apache-2.0
"""Sequences of tensors and optional values, as loops and branches pass them. A sequence is a list."""

from __future__ import annotations

import torch

from quantrt.errors import ModelError
from quantrt.operators.operator import Operator, Value

__all__ = [
    "OPERATORS",
    "concat_from_sequence",
    "optional",
    "optional_get_element",
    "optional_has_element",
    "sequence_at",
    "sequence_construct",
    "sequence_empty",
    "sequence_erase",
    "sequence_insert",
    "sequence_length",
    "split_to_sequence",
]

Tensors = list[torch.Tensor]


def sequence_construct(*tensors: torch.Tensor) -> Tensors:
    """A sequence of the tensors."""
    return list(tensors)


def sequence_empty(*, dtype: int = 1) -> Tensors:
    """A sequence of nothing."""
    del dtype
    return []


def sequence_insert(sequence: Tensors, x: torch.Tensor, position: torch.Tensor | None = None) -> Tensors:
    """The sequence with x before the position; at its end when none is given."""
    place = len(sequence) if position is None else int(position.item())
    if not -len(sequence) <= place <= len(sequence):
        raise ModelError(f"there is no place {place} in a sequence of {len(sequence)}")
    place = place + len(sequence) if place < 0 else place
    return [*sequence[:place], x, *sequence[place:]]


def sequence_erase(sequence: Tensors, position: torch.Tensor | None = None) -> Tensors:
    """The sequence without the element at the position; without its last when none is given."""
    place = _place(sequence, -1 if position is None else int(position.item()))
    return [*sequence[:place], *sequence[place + 1 :]]


def sequence_at(sequence: Tensors, position: torch.Tensor) -> torch.Tensor:
    """The element at the position."""
    return sequence[_place(sequence, int(position.item()))]


def sequence_length(sequence: Tensors) -> torch.Tensor:
    """Number of elements, int64 scalar, in host memory."""
    return torch.tensor(len(sequence), dtype=torch.int64, device=sequence[0].device if sequence else None)


def concat_from_sequence(sequence: Tensors, *, axis: int, new_axis: int = 0) -> torch.Tensor:
    """The elements one after the other along the axis, or stacked on a new one."""
    return torch.stack(sequence, axis) if new_axis else torch.cat(sequence, axis)


def split_to_sequence(
    x: torch.Tensor, sizes: torch.Tensor | None = None, *, axis: int = 0, keepdims: int = 1
) -> Tensors:
    """Parts of the given sizes; of size 1 when none are given, then without the axis unless keepdims."""
    if sizes is None:
        parts = torch.split(x, 1, axis)
        return [part if keepdims else part.squeeze(axis) for part in parts]
    return list(torch.split(x, sizes.tolist() if sizes.dim() else int(sizes.item()), axis))


def optional(x: Value = None, *, type: object = None) -> Value:
    """The value as an optional; the empty optional without one."""
    del type
    return x


def optional_has_element(x: Value = None) -> torch.Tensor:
    """Whether there is a value, bool scalar."""
    device = x.device if isinstance(x, torch.Tensor) else None
    return torch.tensor(x is not None, device=device)


def optional_get_element(x: Value) -> Value:
    """The value."""
    if x is None:
        raise ModelError("an empty optional has no element")
    return x


def _place(sequence: Tensors, place: int) -> int:
    if not -len(sequence) <= place < len(sequence):
        raise ModelError(f"there is no element {place} in a sequence of {len(sequence)}")
    return place % len(sequence)


OPERATORS = (
    Operator("SequenceConstruct", 11, sequence_construct),
    Operator("SequenceEmpty", 11, sequence_empty),
    Operator("SequenceInsert", 11, sequence_insert),
    Operator("SequenceErase", 11, sequence_erase),
    Operator("SequenceAt", 11, sequence_at),
    Operator("SequenceLength", 11, sequence_length),
    Operator("ConcatFromSequence", 11, concat_from_sequence),
    Operator("SplitToSequence", 11, split_to_sequence),
    Operator("Optional", 15, optional),
    Operator("OptionalHasElement", 15, optional_has_element),
    Operator("OptionalGetElement", 15, optional_get_element),
)
