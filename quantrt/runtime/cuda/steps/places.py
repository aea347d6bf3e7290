# SPDX-License-Identifier: Apache-2.0
"""A step whose outputs are slices of the channels of larger images, which several steps fill.

The first of them to run asks for memory of the whole image; those behind it find it by the slice that is
there. A kernel that writes pixels with gaps between writes in place; what anything else makes is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from quantrt.plan.program import Place, Step
from quantrt.runtime.cuda.runner import Allocate, Runner

__all__ = ["run_in_places", "slice_beside", "writes_in_place"]

Tensor = torch.Tensor

_Whole = Callable[[Sequence[int], torch.dtype], Tensor]


def run_in_places(
    runner: Runner, step: Step, inputs: Sequence[Any], values: Mapping[str, Any], allocate: Allocate
) -> Sequence[Any]:
    """The outputs of the runner, those with a place where they belong.

    Args:
        values: all buffers, other slices of the same images among them.
    """
    if not step.places:
        return runner.run(inputs, allocate)
    places = {step.outputs.index(place.buffer): place for place in step.places}

    def allocate_whole(
        output: int, shape: Sequence[int], dtype: torch.dtype, *, channels_last: bool = False
    ) -> Tensor:
        place = places.get(output)
        if place is None:
            return allocate(output, shape, dtype, channels_last=channels_last)
        return _slice(place, (shape, dtype), values, partial(allocate, output, channels_last=True))

    if writes_in_place(step.options):
        return runner.run(inputs, allocate_whole)

    def allocate_beside(
        output: int, shape: Sequence[int], dtype: torch.dtype, *, channels_last: bool = False
    ) -> Tensor:
        number = output + len(step.outputs) if output in places else output
        return allocate(number, shape, dtype, channels_last=channels_last)

    made = list(runner.run(inputs, allocate_beside))
    for output, place in places.items():
        y: Tensor = made[output]
        target = _slice(place, (y.shape, y.dtype), values, partial(allocate, output, channels_last=True))
        made[output] = target.copy_(y)
    return made


def writes_in_place(options: Mapping[str, Any]) -> bool:
    """Whether a step's kernels write pixels with gaps between, by its options; see pixel_rows.py."""
    return bool(options.get("pitches"))


def slice_beside(beside: Tensor, first: int, beside_first: int, channels: int) -> Tensor:
    """Channels from `first` on of the image of which `beside` is those from `beside_first` on."""
    shape = (beside.shape[0], channels, *beside.shape[2:])
    offset = beside.storage_offset() + first - beside_first
    return beside.as_strided(shape, beside.stride(), offset)


def _slice(
    place: Place, made: tuple[Sequence[int], torch.dtype], values: Mapping[str, Any], allocate: _Whole
) -> Tensor:
    """The memory of one output.

    Args:
        made: its shape and type.
    """
    shape, dtype = made
    if place.beside:
        return slice_beside(values[place.beside], place.first, place.beside_first, shape[1])
    whole = allocate((shape[0], place.channels, *shape[2:]), dtype)
    return whole[:, place.first : place.first + shape[1]]
