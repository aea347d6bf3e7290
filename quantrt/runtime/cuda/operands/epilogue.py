# SPDX-License-Identifier: Apache-2.0
"""What a kernel with an epilogue is handed behind its accumulators, in the epilogue's order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.regions.expression import Expression

__all__ = ["EpilogueOperands", "aligned", "channels_last", "has_pitch", "with_pitch"]

Tensor = torch.Tensor

_ALIGNMENT = 16
"""Bytes; kernels are compiled for pointers that are multiples of it."""


class EpilogueOperands:
    """The operands of one epilogue.

    Args:
        kinds: of every operand behind the accumulators: "tensor", "scalar" or "constant".
        scalars: values of the scalar ones.
        constants: memory of the constant ones.
    """

    def __init__(self, kinds: Sequence[str], scalars: Sequence[float], constants: Sequence[Tensor]) -> None:
        self._kinds = tuple(kinds)
        self._scalars = tuple(scalars)
        self.constants = tuple(constants)

    @classmethod
    def of(cls, epilogue: Expression, constants: Sequence[Tensor]) -> EpilogueOperands:
        """Those of an epilogue with one accumulator."""
        operands = epilogue.operands[1:]
        scalars = [operand.value for operand in operands if operand.kind == "scalar"]
        return cls([operand.kind for operand in operands], scalars, constants)

    def in_order(self, tensors: Sequence[Tensor]) -> list[Any]:
        """With the tensors of one run."""
        sources = {"tensor": iter(tensors), "scalar": iter(self._scalars), "constant": iter(self.constants)}
        return [next(sources[kind]) for kind in self._kinds]


def channels_last(x: Tensor) -> Tensor:
    """The tensor with channels next to each other, aligned; copied only where it is not so already."""
    if x.dim() == 4:
        return aligned(x.contiguous(memory_format=torch.channels_last))
    return aligned(x.movedim(1, -1).contiguous().movedim(-1, 1))


def with_pitch(x: Tensor, pitch: int) -> Tensor:
    """As `channels_last`, with pixels that many elements apart; 0: without gaps between."""
    if not pitch:
        return channels_last(x)
    if has_pitch(x, pitch) and x.data_ptr() % _ALIGNMENT == 0:
        return x
    images, channels, *size = x.shape
    return x.new_empty((images, *size, pitch))[..., :channels].movedim(-1, 1).copy_(x)


def has_pitch(x: Tensor, pitch: int) -> bool:
    """Whether channels lie next to each other, and pixels of all images at one distance in elements."""
    if x.shape[1] > 1 and x.stride(1) != 1:
        return False
    pixels = 1
    for axis in (*range(x.dim() - 1, 1, -1), 0):
        if x.shape[axis] > 1 and x.stride(axis) != pitch * pixels:
            return False
        pixels *= x.shape[axis]
    return True


def aligned(x: Tensor) -> Tensor:
    """A dense tensor where kernels may read it; copied only where it is not so already."""
    return x.clone() if x.data_ptr() % _ALIGNMENT else x
