# SPDX-License-Identifier: Apache-2.0
"""Memory of one pass watched, so that the next pass over the same shapes runs in one arena."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import torch

from quantrt.errors import InternalError
from quantrt.runtime.cuda.runner import Allocate
from quantrt.runtime.cuda.steps.arena import ArenaPlan, Lifetime, plan_arena
from quantrt.runtime.cuda.steps.steps import OpenProgram
from quantrt.runtime.cuda.tensors import empty_tensor, shaped

__all__ = ["ArenaMemory", "Slots", "TracedMemory"]

Place = tuple[int, int]
"""A step and one of its outputs, by position."""

Slots = Mapping[Place, tuple[int, int]]
"""Offset and size in bytes of each place."""


@dataclass
class _Allocation:
    """One tensor that a step asked for.

    Attributes:
        address: of its storage; a tensor at the same address while this one lives is a view of it.
        last: the last step that reads it or a view of it.
    """

    place: Place
    size_bytes: int
    address: int
    last: int


class TracedMemory:
    """New tensors for every output, and a record of how long each is needed."""

    def __init__(self, opened: OpenProgram) -> None:
        self._opened = opened
        self._allocations: list[_Allocation] = []
        self._owners: dict[str, _Allocation] = {}

    def allocate_for(self, number: int) -> Allocate:
        """See Memory."""
        return partial(self._allocate, number)

    def note(self, number: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Find whose memory each output lies in, and keep that alive as long as the output."""
        step = self._opened.steps[number].step
        near = list(takewhile(lambda item: item.place[0] == number, reversed(self._allocations)))
        read = (*step.inputs, *(place.beside for place in step.places))
        near += [self._owners[name] for name in read if name in self._owners]
        for name, tensor in zip(step.outputs, outputs, strict=True):
            if not name or not isinstance(tensor, torch.Tensor):
                continue
            address = tensor.untyped_storage().data_ptr()
            owner = next((item for item in near if item.address == address and address), None)
            if owner is not None:
                self._owners[name] = owner
                owner.last = max(owner.last, self._opened.last_reads[name])

    def plan(self) -> tuple[Slots, ArenaPlan]:
        """Where each tensor that was asked for goes in an arena."""
        items = self._allocations
        plan = plan_arena([Lifetime(item.size_bytes, item.place[0], item.last) for item in items])
        slots = {
            item.place: (offset, item.size_bytes) for item, offset in zip(items, plan.offsets, strict=True)
        }
        return slots, plan

    def largest(self) -> str:
        """The region that asked for the most at once, and how much, as a phrase."""
        item = max(self._allocations, key=lambda item: item.size_bytes, default=None)
        if item is None:
            return "no region"
        return (
            f"{item.size_bytes / 2**20:.1f} MiB of region '{self._opened.steps[item.place[0]].step.region}'"
        )

    def _allocate(
        self,
        number: int,
        output: int,
        shape: Sequence[int],
        dtype: torch.dtype,
        *,
        channels_last: bool = False,
    ) -> torch.Tensor:
        place = (number, output)
        recent = takewhile(lambda item: item.place[0] == number, reversed(self._allocations))
        if any(item.place == place for item in recent):
            region = self._opened.steps[number].step.region
            raise InternalError(f"region '{region}' asked twice for memory of one output", got=str(output))
        tensor = empty_tensor(shape, dtype, self._opened.assets.device, channels_last=channels_last)
        storage = tensor.untyped_storage()
        self._allocations.append(_Allocation(place, storage.nbytes(), storage.data_ptr(), number))
        return tensor


class ArenaMemory:
    """The outputs of steps at their places in one arena.

    Args:
        memory: the arena, uint8.
    """

    def __init__(self, opened: OpenProgram, slots: Slots, memory: torch.Tensor) -> None:
        self._opened = opened
        self._slots = slots
        self._memory = memory

    def allocate_for(self, number: int) -> Allocate:
        """See Memory."""
        return partial(self._allocate, number)

    def note(self, number: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """See Memory."""

    def _allocate(
        self,
        number: int,
        output: int,
        shape: Sequence[int],
        dtype: torch.dtype,
        *,
        channels_last: bool = False,
    ) -> torch.Tensor:
        offset, room = self._slots.get((number, output), (0, -1))
        size = math.prod(shape) * dtype.itemsize
        if size > room:
            raise InternalError(
                f"region '{self._opened.steps[number].step.region}' asks for other memory than before",
                got=f"{size} bytes for output {output}",
                expected=f"at most {room}" if room >= 0 else "none",
            )
        memory = self._memory[offset : offset + size]
        return shaped(memory, shape, dtype, channels_last=channels_last)
