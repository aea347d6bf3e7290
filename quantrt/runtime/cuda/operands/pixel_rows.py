# SPDX-License-Identifier: Apache-2.0
"""Images whose pixels may be further apart than they have channels: slices of the channels of larger ones.

options of a step: {"x_pitch": elements from one pixel of x to the next, "pitches": the same of the tensor
operands, then of the outputs; each absent, or 0, where there are no gaps between}.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from quantrt.errors import InternalError
from quantrt.plan.program import Step
from quantrt.runtime.cuda.operands.epilogue import has_pitch, with_pitch
from quantrt.runtime.cuda.runner import Allocate

__all__ = ["PixelRows"]

Tensor = torch.Tensor


class PixelRows:
    """The images that a step reads and makes, as its kernels want them."""

    def __init__(self, step: Step) -> None:
        options = step.options
        count = len(options["outputs"])
        pitches = [int(pitch) for pitch in options.get("pitches", ())]
        self._region = step.region
        self._x = int(options.get("x_pitch", 0))
        self._outputs = pitches[-count:] or [0] * count
        self._tensors = pitches[:-count]

    def x(self, x: Tensor) -> Tensor:
        """What is read; copied only where it does not lie so already."""
        return with_pitch(x, self._x)

    def tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The operands behind x; copied only where they do not lie so already."""
        pitches = self._tensors or [0] * len(tensors)
        return [with_pitch(tensor, pitch) for tensor, pitch in zip(tensors, pitches, strict=True)]

    def allocate(self, allocate: Allocate, number: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Memory of one output.

        Raises:
            InternalError: it does not lie as the kernels write it.
        """
        y = allocate(number, shape, dtype, channels_last=True)
        pitch = self._outputs[number]
        if pitch and not has_pitch(y, pitch):
            raise InternalError(
                f"output {number} of region '{self._region}' lies otherwise than its kernel writes it",
                got=f"strides {list(y.stride())} of {list(shape)}",
                expected=f"pixels that are {pitch} elements apart",
            )
        return y
